"""Putting a broker back from its records, and writing them anew."""
