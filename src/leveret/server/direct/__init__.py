"""Clients in the same process as the broker, without sockets."""
