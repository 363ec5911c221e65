"""Recovery: rebuilding the broker's state from what a stop left on the disk."""
