"""Encoding and decoding of methods with their content, and of the outcomes of publishes."""
