"""A connection in the client role, sans-IO: bytes in; bytes and events out."""
