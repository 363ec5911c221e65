"""The layouts of records and definitions on disk, and sets of sequences."""
