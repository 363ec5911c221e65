"""Durable storage: the journal, chunks, the state snapshot, and recovery."""
