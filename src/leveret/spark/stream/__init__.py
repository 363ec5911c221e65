"""Streams as tables: which there are, what of them is read, and the readers."""
