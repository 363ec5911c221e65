"""The client library: a session without I/O in the client's role, and shells around it."""
