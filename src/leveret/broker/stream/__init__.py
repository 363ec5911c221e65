"""Streams: blocks of messages that stay, and those who read them by offset."""
