"""A virtual host with its exchanges, bindings, queues and policies."""
