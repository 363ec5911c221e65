"""The HTTP API: the state of the broker in RabbitMQ's JSON, and streams in bulk.

The Unix socket serves the broker's operator, who may do everything.  TCP serves the broker's users,
with their passwords and permissions.
"""
