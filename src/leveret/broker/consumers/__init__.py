"""A consumer, what it is subscribed to, and which of several gets the next message."""
