"""The HTTP API: RabbitMQ's JSON over snapshots of the core, and streams in bulk.

The Unix socket serves the broker's operator, who may do everything. TCP serves the broker's users,
with their passwords and permissions.
"""
