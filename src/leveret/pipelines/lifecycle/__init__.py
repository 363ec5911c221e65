"""The life of messages, from the broker's events."""
