"""What the whole broker shares: accounts, quotas, ownership, counters."""
