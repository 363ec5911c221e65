"""Rates and histories of what is counted, sampled beside the traffic."""
