"""Metrics for Prometheus: the table of series, their values, and the text format."""
