"""The scheduler: which work runs next, and for how long."""
