"""Conversion of messages to Arrow columns, and the schema of a read."""
