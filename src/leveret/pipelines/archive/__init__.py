"""The archive: streams into a lake, exactly once."""
