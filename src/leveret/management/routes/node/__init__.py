"""Routes of the node itself: what there is in it, and its backups."""
