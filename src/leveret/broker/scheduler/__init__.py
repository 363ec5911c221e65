"""Decides whose turn it is, and for how long."""
