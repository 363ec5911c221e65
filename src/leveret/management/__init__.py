"""The HTTP API: RabbitMQ's JSON over snapshots of the core, for tools that read it.

Not here yet: listening on TCP, users and permissions, everything that changes something.
"""
