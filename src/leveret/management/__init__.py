"""The HTTP API: it reads the core through snapshots only."""
