"""The random exchanges: each message goes to a random binding.

`x-random` accepts any binding.  `x-local-random` accepts only queues of this node (as all queues
are), bound with an empty key.

The choice uses the upper bits of a linear congruential generator.  Its sequence depends only on the
name of the exchange, because randomness would have to be injected and nothing better is needed.

Source: RabbitMQ's plugin x-random and its core type x-local-random.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Declared, Exchange, Routing
from leveret.errors import PreconditionFailed
from leveret.routing.ring import ring_hash

# Knuth's MMIX generator.
_FACTOR: Final = 6_364_136_223_846_793_005
_INCREMENT: Final = 1_442_695_040_888_963_407
_MASK: Final = (1 << 64) - 1


class RandomExchange(Exchange):
    """Lists the bindings, each with its index in the list."""

    listed: list[Binding]
    places: dict[Binding, int]
    state: int

    def __init__(self, declared: Declared) -> None:
        """Start without bindings; keys are ignored."""
        super().__init__(declared)
        self.chooses = True
        self.looks_at_keys = False
        self.listed = []
        self.places = {}
        self.state = ring_hash(self.name.encode("utf-8", "surrogateescape"))

    def add(self, binding: Binding) -> None:
        """Add `binding` to the list."""
        self.places[binding] = len(self.listed)
        self.listed.append(binding)

    def remove(self, binding: Binding) -> None:
        """Replace `binding` in the list by the last binding."""
        place = self.places.pop(binding)
        last = self.listed.pop()
        if last is not binding:
            self.listed[place] = last
            self.places[last] = place

    def route(self, routing: Routing) -> None:
        """Match one binding, chosen at random for each message."""
        routing.dynamic = True
        if self.listed:
            self.state = (self.state * _FACTOR + _INCREMENT) & _MASK
            routing.take(self.listed[(self.state >> 33) % len(self.listed)])


class LocalRandomExchange(RandomExchange):
    """A random exchange of queues only, bound with an empty key."""

    def add(self, binding: Binding) -> None:
        """Add `binding` to the list.

        Raises: PreconditionFailed (406) for a key, or a destination other than a classic queue.
        """
        if binding.binding_key:
            raise PreconditionFailed(f"Non empty binding '{binding.binding_key}' key not permitted")
        queue = binding.queue
        if queue is None:
            raise PreconditionFailed("Destination not found")
        if queue.kind != "classic":
            raise PreconditionFailed(f"Queue type {queue.kind} not valid for this exchange type")
        super().add(binding)
