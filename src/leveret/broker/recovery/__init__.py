"""Rebuilds a broker from its records, and writes its state at a checkpoint."""
