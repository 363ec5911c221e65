"""Producers and consumer clusters for topics, built on the asyncio client.

A *topic* is a fanout exchange.  A *cluster* is a group of programs that share the work of a topic:
each cluster receives every message of the topic once, and one *member* of the cluster handles it.
On the broker, a cluster consists of exchanges and queues; `names` and `topology` define their names
and arguments, so that programs with any AMQP client can publish to a topic and join a cluster.

The public classes are `producer.Producer` and `consumer.ClusterConsumer`, exported as
`leveret.Producer` and `leveret.Consumer`.  `blocking` contains their counterparts for programs
without asyncio.

Invariants: a message is acked only after its handler has returned; at most one member at a time
receives the messages of a partition.
"""
