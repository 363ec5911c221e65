"""Streams: blocks of retained messages, and their readers, which read by offset."""
