"""The modulus-hash exchange: the hash of the routing key selects one of the sorted destinations.

The index is the hash modulo the number of destinations.  Binding keys are ignored.  Messages are
distributed more evenly than by a consistent-hash exchange, but a new destination moves most keys.
Destinations are sorted by name, so that the choice is the same after a restart.

Source: RabbitMQ's sharding plugin, and its core from 4.3 on.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Declared, Exchange, Routing
from leveret.routing.ordered import OrderedNames
from leveret.routing.ring import ring_hash

#: The memory of a destination with the table of its bindings.
_END_BYTES: Final = 480


class ModulusHashExchange(Exchange):
    """Indexes bindings by the names of their destinations; each destination counts once."""

    ends: dict[tuple[bool, str], dict[Binding, None]]
    names: OrderedNames

    def __init__(self, declared: Declared) -> None:
        """Start without bindings; only the first of several routing keys counts."""
        super().__init__(declared)
        self.chooses = True
        self.looks_at_keys = False
        self.ends = {}
        self.names = OrderedNames()

    def add(self, binding: Binding) -> None:
        """Index `binding` by its destination."""
        end = (binding.queue is not None, binding.destination)
        bindings = self.ends.get(end)
        if bindings is None:
            bindings = self.ends[end] = {}
            self.names.insert(end)
        bindings[binding] = None

    def remove(self, binding: Binding) -> None:
        """Remove `binding` from the index."""
        end = (binding.queue is not None, binding.destination)
        bindings = self.ends[end]
        del bindings[binding]
        if not bindings:
            del self.ends[end]
            self.names.remove(end)

    def index_bytes(self) -> i64:
        """Return the memory of the index."""
        return len(self.ends) * _END_BYTES

    def route(self, routing: Routing) -> None:
        """Match one binding of the destination for the routing key."""
        names = self.names
        if names.size > 0:
            digest = ring_hash(routing.routing_key.encode("utf-8", "surrogateescape"))
            for binding in self.ends[names.at(digest % int(names.size))]:
                routing.take(binding)
                break
