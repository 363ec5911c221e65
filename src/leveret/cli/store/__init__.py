"""Data directories without their broker: `leveret store`."""
