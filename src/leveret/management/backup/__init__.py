"""Backups over HTTP: the files of the data directory, downloaded by a client."""
