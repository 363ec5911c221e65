"""How records, definitions and ranges of sequences lie in files."""
