"""Serving HTTP: sockets and who gets a place on them, connections, and the log of both."""
