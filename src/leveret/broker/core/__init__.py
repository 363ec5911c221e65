"""What one call into the broker gathers for the shell, the timers, and who owns what."""
