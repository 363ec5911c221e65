"""Brokers on other machines: contexts by name, and asking the API of one."""
