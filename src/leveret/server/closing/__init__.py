"""The end of a connection: how its socket is closed so that the peer receives what was sent."""
