"""The resources of HTTP requests: slices of the event loop, memory, and steps of changes."""
