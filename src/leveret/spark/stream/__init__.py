"""Streams as tables: which there are, what is read of them, and the readers."""
