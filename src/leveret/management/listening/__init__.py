"""The HTTP listeners: the Unix socket, TCP with and without TLS, and the port for metrics."""
