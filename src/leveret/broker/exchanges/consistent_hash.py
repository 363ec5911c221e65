"""The consistent-hash exchange: each message goes to one binding, chosen by a hashed value.

The binding key is the weight of the binding, its share of the values.  A new binding takes a share
from all others, and no other values move (see `routing.ring`).  Several bindings of one destination
count as the heaviest of them.

Source: RabbitMQ's plugin of that name, for arguments, weights and texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Declared, Exchange, Routing
from leveret.broker.exchanges.hashing import HashSource
from leveret.broker.scheduler.scheduler import Scheduler
from leveret.errors import PreconditionFailed
from leveret.limits import RING_POINTS_PER_WEIGHT, RING_WEIGHT_MAX, RING_WEIGHTS_MAX
from leveret.routing.ring import HashRing, ring_hash

if TYPE_CHECKING:
    from leveret.broker.core import Core

#: The memory of a point of the ring, and of an empty ring.
_POINT_BYTES: Final = 46
_RING_BYTES: Final = 17_000

#: The units of work on a ring that take about a microsecond, the units done at once, and the looks
#: that take as long as one unit.
_WORK_PER_COST: Final = 4
_WORK_AT_ONCE: Final = 1024
_LOOKS_PER_WORK: Final = 2

#: The maximum number of looks counted for finding a value.  Parts of the ring may have to be sorted
#: first, and the message is not charged for all of that.
_LOOKS_MAX: Final = 16_384


class ConsistentHashExchange(Exchange):
    """Stores bindings on a ring.  Raises: PreconditionFailed (406) for invalid arguments."""

    ring: HashRing
    source: HashSource
    _scheduler: Scheduler | None

    def __init__(self, declared: Declared) -> None:
        """Start with an empty ring; only the first of several routing keys counts."""
        super().__init__(declared)
        self.chooses = True
        self.looks_at_keys = False
        self.ring = HashRing()
        self.source = HashSource(self.arguments)
        self._scheduler = None

    def equip(self, core: Core) -> None:
        """Store the scheduler, which frees the ring later."""
        self._scheduler = core.scheduler

    def drop(self) -> None:
        """Free the ring.  A task frees large rings."""
        super().drop()
        if self._scheduler is not None:
            for points in self.ring.empty():
                # There are very many lists, all of them short.
                self._scheduler.memory.free_later(points)

    def add(self, binding: Binding) -> None:
        """Put `binding` on the ring.

        Raises: PreconditionFailed (406) for a key that is not a weight, or for too much weight.
        """
        weight = weight_of(binding.binding_key)
        held = int(self.ring.size) // RING_POINTS_PER_WEIGHT
        if held + weight > RING_WEIGHTS_MAX:
            raise PreconditionFailed(
                f"the weights of all bindings of an exchange exceed {RING_WEIGHTS_MAX}"
            )
        kind = "queue" if binding.queue is not None else "exchange"
        self.ring.insert(binding, f"{kind} {binding.destination}", weight)

    def remove(self, binding: Binding) -> None:
        """Remove `binding` from the ring."""
        self.ring.remove(binding)

    def owes(self) -> bool:
        """Return whether points of the ring remain to be added or removed."""
        return self.ring.owes()

    def settle_index(self) -> None:
        """Add and remove some points."""
        self.ring.settle(_WORK_AT_ONCE)

    def index_cost(self) -> i64:
        """Return the cost of all work on the ring so far."""
        return self.ring.work // _WORK_PER_COST

    def index_bytes(self) -> i64:
        """Return the memory of the index."""
        return self.ring.size * _POINT_BYTES + _RING_BYTES

    def route(self, routing: Routing) -> None:
        """Match the binding for the message's value."""
        ring = self.ring
        before = ring.work
        target = ring.find(ring_hash(self.source.value(routing)))
        routing.look(min(_LOOKS_PER_WORK * (ring.work - before), _LOOKS_MAX))
        if isinstance(target, Binding):
            routing.take(target)


def weight_of(key: str) -> int:
    """Return the weight in a binding key.  Raises: PreconditionFailed (406)."""
    digits = key[1:] if key[:1] in ("+", "-") else key
    if not digits.isascii() or not digits.isdigit():
        raise PreconditionFailed(f"The binding key must be an integer: '{key}'")
    weight = int(key)
    if weight < 1:
        raise PreconditionFailed("The binding key must be greater than 0")
    if weight > RING_WEIGHT_MAX:
        raise PreconditionFailed(f"The binding key must not be greater than {RING_WEIGHT_MAX}")
    return weight
