"""Snapshots and totals of the model, for the HTTP API and the metrics."""
