"""The super-stream exchange: the hash of the routing key selects one of the partitions.

The partition is the hash modulo the number of partitions.  The key of a binding is the number of
its partition, starting at 0.  The argument `x-super-stream-partitions` is the number of partitions.
With it, keys of a deleted partition do not move to other partitions, and their messages are not
routed.  Without it, the number of bindings is used, as in RabbitMQ.

The hash is that of RabbitMQ's exchange of this type and of its stream clients (`routing.murmur`),
so that a routing key belongs to the same partition for all publishers.

Source: RabbitMQ's type x-super-stream.  `broker.super_streams` declares whole super streams.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.attributes.arguments import int_argument
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.direct import DirectExchange
from leveret.broker.exchanges.exchange import Declared, Routing
from leveret.errors import PreconditionFailed
from leveret.routing.murmur import partition_of

#: The bytes of a key that count as one look.  Hashing them takes less time than one look.
_BYTES_PER_LOOK: Final = 8


class SuperStreamExchange(DirectExchange):
    """Indexes bindings by the number in their key."""

    #: The number of partitions in the argument.  Below 1 it is not set.
    declared: int

    def __init__(self, declared: Declared) -> None:
        """Start without partitions; only the first of several routing keys counts."""
        super().__init__(declared)
        self.looks_at_keys = False
        self.declared = int_argument(self.arguments, "x-super-stream-partitions")

    def key_of(self, binding: Binding) -> str:
        """Return the partition number.  Raises: PreconditionFailed (406) for another key."""
        return str(partition_number(binding.binding_key))

    def route(self, routing: Routing) -> None:
        """Match the bindings of the partition, if any."""
        partitions = self.declared if self.declared > 0 else len(self.by_key)
        if partitions == 0:
            return
        key = routing.routing_key.encode("utf-8", "surrogateescape")
        routing.look(len(key) // _BYTES_PER_LOOK)
        routing.take_all(self.by_key.get(str(partition_of(key, partitions)), ()))


def partition_number(key: str) -> int:
    """Return the number in a binding key.  Raises: PreconditionFailed (406)."""
    if not key.isascii() or not key.isdigit():
        raise PreconditionFailed(f"The binding key must be an integer: '{key}'")
    return int(key)
