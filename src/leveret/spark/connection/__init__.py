"""Connections to a broker, over AMQP and HTTP, and when to try again."""
