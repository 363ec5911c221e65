"""The administration of a broker: definitions, statistics and super streams."""
