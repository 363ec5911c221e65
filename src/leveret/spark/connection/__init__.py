"""Connections to a broker over AMQP and HTTP, and their retry policy."""
