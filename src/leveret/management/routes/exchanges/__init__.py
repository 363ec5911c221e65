"""Routes of exchanges and their bindings."""
