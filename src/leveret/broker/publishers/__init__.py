"""Named publishers: deduplication of messages sent again, and sessions of lost connections."""
