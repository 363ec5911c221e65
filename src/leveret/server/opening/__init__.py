"""The steps before a connection's own protocol: the PROXY header and the TLS handshake."""
