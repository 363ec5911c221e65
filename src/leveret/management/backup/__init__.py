"""Backups over HTTP: the files of the data directory, sent to a client that keeps them."""
