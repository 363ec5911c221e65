"""Queues as tables: browsed, or consumed through the spool."""
