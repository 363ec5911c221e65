"""An AMQP 0-9-1 connection and its parts."""
