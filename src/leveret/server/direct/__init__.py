"""AMQP clients in the process of the broker, without sockets."""
