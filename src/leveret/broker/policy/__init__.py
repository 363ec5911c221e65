"""Policies and their keys."""
