"""Backups of a data directory: `leveret backup` and `leveret restore`."""
