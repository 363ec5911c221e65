"""The `leveret` command: it parses, calls and prints."""
