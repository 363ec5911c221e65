"""Clients of the broker within its own process."""
