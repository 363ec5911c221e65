"""Exporting and importing definitions, as RabbitMQ's definitions files have them."""
