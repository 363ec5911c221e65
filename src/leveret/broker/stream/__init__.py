"""Streams: blocks of messages that stay, and their readers, which read by offset."""
