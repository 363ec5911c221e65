"""AMQP 0-9-1 on the wire: bytes to methods, tables, properties and frames, and back."""
