"""Delayed messages, which an exchange stores until the time requested by `x-delay`."""
