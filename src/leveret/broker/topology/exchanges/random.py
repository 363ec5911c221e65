"""The random exchanges: each message goes to one binding, whichever.

`x-random` takes any binding; `x-local-random` takes queues of this node only, which here all are,
bound with an empty key.

The order of choices follows from the exchange's name alone (chance is handed in, and there is no
need for better): a linear congruential generator, of which the upper bits are used.

Source: RabbitMQ's plugin x-random and its core type x-local-random.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Declared, Exchange, Routing
from leveret.errors import PreconditionFailed
from leveret.routing.ring import ring_hash

# Knuth's MMIX generator.
_FACTOR: Final = 6_364_136_223_846_793_005
_INCREMENT: Final = 1_442_695_040_888_963_407
_MASK: Final = (1 << 64) - 1


class RandomExchange(Exchange):
    """Bindings in a list, each with its place there."""

    listed: list[Binding]
    places: dict[Binding, int]
    state: int

    def __init__(self, declared: Declared) -> None:
        """Start without bindings; keys mean nothing."""
        super().__init__(declared)
        self.chooses = True
        self.looks_at_keys = False
        self.listed = []
        self.places = {}
        self.state = ring_hash(self.name.encode("utf-8", "surrogateescape"))

    def add(self, binding: Binding) -> None:
        """List `binding`."""
        self.places[binding] = len(self.listed)
        self.listed.append(binding)

    def remove(self, binding: Binding) -> None:
        """Put the last binding into the place of `binding`."""
        place = self.places.pop(binding)
        last = self.listed.pop()
        if last is not binding:
            self.listed[place] = last
            self.places[last] = place

    def route(self, routing: Routing) -> None:
        """Match one binding, another one for each message."""
        routing.dynamic = True
        if self.listed:
            self.state = (self.state * _FACTOR + _INCREMENT) & _MASK
            routing.take(self.listed[(self.state >> 33) % len(self.listed)])


class LocalRandomExchange(RandomExchange):
    """Queues only, bound with an empty key."""

    def add(self, binding: Binding) -> None:
        """List `binding`.

        Raises: PreconditionFailed (406) for a key, or a destination that is no classic queue.
        """
        if binding.binding_key:
            raise PreconditionFailed(f"Non empty binding '{binding.binding_key}' key not permitted")
        queue = binding.queue
        if queue is None:
            raise PreconditionFailed("Destination not found")
        if queue.kind != "classic":
            raise PreconditionFailed(f"Queue type {queue.kind} not valid for this exchange type")
        super().add(binding)
