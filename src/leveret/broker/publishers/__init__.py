"""Named publishers: deduplication of what they send again, and their lost sessions."""
