"""Reads of queues: the batch read browses a queue, the streaming read consumes it into a spool."""
