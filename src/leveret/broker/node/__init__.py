"""The whole broker: virtual hosts, users, permissions, parameters, memory and events."""
