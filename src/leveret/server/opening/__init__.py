"""What comes before a connection's own protocol: a proxy's header, and the handshake of TLS."""
