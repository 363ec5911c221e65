"""Routes of exchanges and bindings, and of publishing."""
