"""Routes of the node: its clients, its state, its metrics and its backups."""
