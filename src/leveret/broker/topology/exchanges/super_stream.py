"""The super-stream exchange: the hash of the routing key, modulo the partitions, names one of them.

The key of a binding is the number of its partition, from 0 on.  How many there are the argument
`x-super-stream-partitions` says, so that the keys of a partition that was deleted do not move to
others: their messages are not routed.  Without it, as in RabbitMQ, the bindings are counted.

The hash is that of RabbitMQ's exchange of this type and of its stream clients (`routing.murmur`),
so that a routing key belongs to the same partition whoever publishes it.

Source: RabbitMQ's type x-super-stream; how one is declared whole is `broker.super_stream`.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Declared, Routing
from leveret.broker.topology.exchanges.direct import DirectExchange
from leveret.broker.values.arguments import int_argument
from leveret.errors import PreconditionFailed
from leveret.routing.murmur import partition_of

#: Bytes of a key that count as a look at a binding: less than one where their hash is compiled, and
#: fifty lines of plain Python.
_BYTES_PER_LOOK: Final = 8


class SuperStreamExchange(DirectExchange):
    """Bindings by the number that their key is."""

    #: How many there are by the argument; below 1 it says nothing.
    declared: int

    def __init__(self, declared: Declared) -> None:
        """Start without partitions; of several routing keys the first one counts."""
        super().__init__(declared)
        self.looks_at_keys = False
        self.declared = int_argument(self.arguments, "x-super-stream-partitions")

    def key_of(self, binding: Binding) -> str:
        """Return the number.  Raises: PreconditionFailed (406) for a key that is no number."""
        return str(partition_number(binding.binding_key))

    def route(self, routing: Routing) -> None:
        """Match the bindings of the partition; where it is missing, nothing."""
        partitions = self.declared if self.declared > 0 else len(self.by_key)
        if partitions == 0:
            return
        key = routing.routing_key.encode("utf-8", "surrogateescape")
        routing.look(len(key) // _BYTES_PER_LOOK)
        routing.take_all(self.by_key.get(str(partition_of(key, partitions)), ()))


def partition_number(key: str) -> int:
    """Return the number that a binding key is.  Raises: PreconditionFailed (406)."""
    if not key.isascii() or not key.isdigit():
        raise PreconditionFailed(f"The binding key must be an integer: '{key}'")
    return int(key)
