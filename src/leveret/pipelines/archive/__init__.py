"""The archive job: writes streams to a lake, exactly once."""
