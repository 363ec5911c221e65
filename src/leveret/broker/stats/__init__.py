"""Snapshots and totals of the broker's state, for the HTTP API and the metrics."""
