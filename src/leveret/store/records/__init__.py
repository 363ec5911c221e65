"""The layout of records, definitions and ranges of sequences in files."""
