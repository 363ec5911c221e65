"""One virtual host: its exchanges, bindings, queues and policies."""
