"""Parsing of the data source's options from text into frozen objects."""
