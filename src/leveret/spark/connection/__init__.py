"""Connections to a broker, over AMQP and HTTP, and the policy for retries."""
