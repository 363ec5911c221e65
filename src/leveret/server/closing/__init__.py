"""Closing sockets so that the peer receives everything that was sent."""
