"""What operators see and load: definitions, statistics, super streams."""
