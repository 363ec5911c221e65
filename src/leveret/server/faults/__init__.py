"""Fault injection on AMQP connections, for tests with an embedded broker."""
