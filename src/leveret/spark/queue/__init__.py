"""Queues as tables: looked at, or taken through the spool."""
