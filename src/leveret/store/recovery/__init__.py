"""From what a stop left on the disk to the broker's state."""
