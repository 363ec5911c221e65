"""Policies, and the keys that they may set."""
