"""Leveret: an AMQP 0-9-1 message broker in typed Python, whose streams are tables to Spark."""

__version__ = "0.1.0"
