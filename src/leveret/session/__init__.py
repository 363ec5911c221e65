"""Client connections as state machines, which turn bytes into bytes and effects, without I/O."""
