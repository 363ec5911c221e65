"""Backups over HTTP: a client downloads the files of the data directory."""
