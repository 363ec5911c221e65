"""The HTTP API: RabbitMQ's JSON over snapshots of the core, and streams in bulk.

On the Unix socket it is for who operates the broker, who may do everything; on TCP for the broker's
users with their passwords and permissions, and so far for streams only.
"""
