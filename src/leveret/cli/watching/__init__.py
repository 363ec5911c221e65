"""The current state of a broker: `leveret status` prints it once, `leveret top` repeatedly."""
