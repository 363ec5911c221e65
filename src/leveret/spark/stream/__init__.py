"""Streams as tables: the list of streams, the ranges to read, and the readers."""
