"""Metrics for Prometheus: the table of series, the values of one moment, and their text."""
