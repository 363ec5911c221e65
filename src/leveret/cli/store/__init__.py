"""`leveret store`: commands that read a data directory without its broker."""
