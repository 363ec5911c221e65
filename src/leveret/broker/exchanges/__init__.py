"""Exchanges, a file for each type, and their bindings."""
