"""What waits in a queue, in memory and on disk."""
