"""Brokers on other machines: contexts by name, and requests to their APIs."""
