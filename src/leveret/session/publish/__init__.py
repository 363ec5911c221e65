"""The path of a publish from its bytes to its queues."""
