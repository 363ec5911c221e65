"""What HTTP requests use: slices of the event loop, memory, and steps that change the broker."""
