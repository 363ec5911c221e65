"""Delayed messages: what an exchange keeps until the time that `x-delay` asks for."""
