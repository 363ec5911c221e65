"""Serving HTTP: sockets and their connection slots, connections, and the log of both."""
