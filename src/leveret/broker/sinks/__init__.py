"""Sinks and their staging queues: a batch becomes visible by one commit."""
