"""HareMQ's protocol: its frames, its requests and its answers."""
