"""The waiting messages of a queue, in memory and on disk."""
