"""HareMQ's protocol: its frames, requests and responses."""
