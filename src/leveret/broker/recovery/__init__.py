"""Rebuilding a broker from its records, and writing its state at a checkpoint."""
