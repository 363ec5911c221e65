"""Segment files: chunks of messages, their places, and chunks that queues write early."""
