"""The AMQP model: vhosts, exchanges, queues, bindings, consumers.  It does no I/O."""
