"""Rates and histories of the broker's counters, sampled periodically."""
