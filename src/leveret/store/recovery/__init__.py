"""Recovery: rebuilding the broker's state from the disk after a stop."""
