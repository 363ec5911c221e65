"""Routes of streams and super streams."""
