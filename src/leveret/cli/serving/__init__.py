"""The process of a broker: its setup, its heap, its service manager and its end."""
