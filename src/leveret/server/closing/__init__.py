"""Closing sockets in such a way that the peer receives all output."""
