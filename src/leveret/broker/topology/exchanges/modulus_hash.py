"""The modulus-hash exchange: the routing key's hash, modulo the bindings, names the one to take.

Binding keys mean nothing.  It spreads more evenly than a consistent-hash exchange, but any new
binding moves most keys.  Destinations count in the order of their names, so that the choice is the
same after a restart.

Source: RabbitMQ's sharding plugin, and its core from 4.3 on.
"""

from __future__ import annotations

from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Exchange, Routing
from leveret.routing.ring import ring_hash


class ModulusHashExchange(Exchange):
    """Bindings by the names of their destinations, one for each."""

    ordered: list[Binding]
    #: True when the bindings changed since `ordered` was made.
    stale: bool

    def start_index(self) -> None:
        """Start without bindings; of several routing keys the first one counts."""
        self.looks_at_keys = False
        self.ordered = []
        self.stale = False

    def add(self, binding: Binding) -> None:
        """Note that there is one more."""
        self.stale = True

    def remove(self, binding: Binding) -> None:
        """Note that there is one less."""
        self.stale = True

    def route(self, routing: Routing) -> None:
        """Match the binding of the routing key."""
        if self.stale:
            self._order()
        if self.ordered:
            digest = ring_hash(routing.routing_key.encode("utf-8", "surrogateescape"))
            routing.take(self.ordered[digest % len(self.ordered)])

    def _order(self) -> None:
        """Keep one binding of each destination, in order."""
        ends = {(b.queue is not None, b.destination): b for b in self.bindings.values()}
        self.ordered = [ends[end] for end in sorted(ends)]
        self.stale = False
