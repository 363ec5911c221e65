"""What requests over HTTP take: slices of the loop and memory, and steps that change something."""
