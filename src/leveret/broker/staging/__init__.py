"""Staging queues and sinks: what is written and becomes visible by one commit."""
