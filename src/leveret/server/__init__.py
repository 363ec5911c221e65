"""The broker's I/O: listeners, client sockets, TLS, and the runner of the core's effects."""
