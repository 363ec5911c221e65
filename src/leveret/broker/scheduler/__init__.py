"""The scheduler, which decides what runs next and for how long."""
