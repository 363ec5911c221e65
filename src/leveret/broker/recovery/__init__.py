"""Rebuilding a broker from its records, and handing its state over at a checkpoint."""
