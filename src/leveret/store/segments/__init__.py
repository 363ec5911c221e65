"""Segment files: chunks of messages, where they lie, and those that queues write early."""
