"""State shared by the whole broker: accounts, quotas, ownership, counters."""
