"""Spark jobs over what went through the broker."""
