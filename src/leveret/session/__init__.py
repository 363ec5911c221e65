"""One client connection as a state machine: bytes in, bytes and effects out; no I/O."""
