"""Topics, producers and consumer clusters, over the asyncio client.

A *topic* is a fanout exchange.  A *cluster* is a group of programs that share the work of a topic:
each cluster gets every message of the topic once, and one *member* of it handles each message.
On the broker, a cluster consists of exchanges and queues; `names` and `topology` define their names
and arguments, so that programs with any AMQP client can publish to a topic and join a cluster.

`producer.Producer` and `consumer.Consumer` are the public classes, `leveret.Producer` and
`leveret.Consumer` for short; `blocking` has the same two for programs without asyncio.

Invariants: a message is acked only after its handler has returned; at most one member at a time
receives the messages of a partition.
"""
