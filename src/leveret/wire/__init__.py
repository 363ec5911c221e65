"""AMQP 0-9-1 on the wire: encoding and decoding of frames, methods, tables and properties."""
