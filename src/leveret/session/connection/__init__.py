"""A connection and what it is composed of."""
