"""The AMQP model: vhosts, exchanges, bindings, queues, streams and consumers.  No I/O, no clock."""
