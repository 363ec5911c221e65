"""Staging queues and sinks: messages that become visible together by one commit."""
