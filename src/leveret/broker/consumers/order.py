"""The order in which a queue's consumers receive messages.

There is a class for each of three orders: all consumers in turn (`RoundRobin`), the consumers with
the highest priority in turn (`ConsumerPriorities`), or one consumer for all messages
(`single_active.py`).  A queue begins with `RoundRobin`.  `added` and `removed` return the order to
use from then on.

Invariants: `consumers` is the list of the queue, in the order of registration.  With equal
prefetch, no consumer is two messages ahead of another that could have taken more, even when other
consumers are added and removed.

Source: behaviour 62 (consumer priorities).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.consumers.consumer import QueueConsumer

#: The maximum number of consumers checked for one message.  More are checked once per dispatch
#: (`able`).
_ASKED_MAX: Final = 64


def place_of(consumer: QueueConsumer, consumers: list[QueueConsumer]) -> i64:
    """Return the place of a consumer in a list that is sorted by number."""
    number = consumer.number
    low: i64 = 0
    high: i64 = len(consumers) - 1
    while low < high:
        middle: i64 = (low + high) // 2
        if consumers[middle].number < number:
            low = middle + 1
        else:
            high = middle
    return low if consumers[low] is consumer else consumers.index(consumer)


class RoundRobin:
    """Round robin: each consumer that can take a message receives one in turn."""

    def __init__(self, consumers: list[QueueConsumer]) -> None:
        self.consumers = consumers
        #: The place of the next consumer in the list.
        self.place: i64 = 0

    def added(self, consumer: QueueConsumer) -> RoundRobin:
        """Add `consumer`, which is the last in the list; return the order to use from now on."""
        consumers = self.consumers
        if len(consumers) == 1 or consumer.priority == consumers[0].priority:
            return self
        return ConsumerPriorities(consumers, self.place)

    def removed(self, consumer: QueueConsumer, place: i64) -> RoundRobin:
        """Remove `consumer`, which was at `place`; return the order to use from now on."""
        if place < self.place:
            self.place -= 1
        return self

    def next(self) -> QueueConsumer | None:
        """Return the next consumer in turn that can take a message, or None.

        It checks at most `_ASKED_MAX` consumers.  If there are more, None means that `able` has to
        check all.
        """
        consumers = self.consumers
        size: i64 = len(consumers)
        place: i64 = self.place
        if place >= size:
            if size == 0:
                return None
            place = 0
        consumer = consumers[place]
        place += 1
        if consumer.ready():
            self.place = place
            return consumer
        return self._search(place)

    def _search(self, place: i64) -> QueueConsumer | None:
        """Return the first consumer from `place` on that can take a message, or None.

        The caller has already checked the consumer before `place`.
        """
        consumers = self.consumers
        size: i64 = len(consumers)
        left: i64 = min(size, _ASKED_MAX) - 1
        while left > 0:
            left -= 1
            if place >= size:
                place = 0
            consumer = consumers[place]
            place += 1
            if consumer.ready():
                self.place = place
                return consumer
        return None

    def able(self, limit: i64) -> AbleConsumers | None:
        """Return at most `limit` consumers that can take a message, after `next` returned None.

        Return None if `next` has already checked all consumers.
        """
        if len(self.consumers) <= _ASKED_MAX:
            return None
        able = AbleConsumers(limit)
        for order in self.orders():
            if not able.gather(order):
                break
        return able

    def orders(self) -> list[RoundRobin]:
        """Return the round-robin orders, the highest priority first."""
        return [self]

    def has_more(self) -> bool:
        """Return whether other consumers may take a message, although `next` returned None."""
        return False

    def has_ready(self) -> bool:
        """Return whether a consumer can take a message, without changing the order."""
        for consumer in self.consumers:
            if consumer.ready():
                return True
        return False

    def is_active(self, consumer: QueueConsumer) -> bool:
        """Return whether `consumer` may receive messages now."""
        return True


@final
class AbleTier:
    """The consumers of one order that could take a message when they were checked."""

    def __init__(self, origin: RoundRobin) -> None:
        self.origin: Final = origin
        #: Each consumer with its place in the order.
        self.consumers: Final[list[tuple[QueueConsumer, int]]] = []
        self.place: i64 = 0


@final
class AbleConsumers(RoundRobin):
    """The ready consumers among very many, for one dispatch of the queue.

    A consumer that can take no more is skipped for the rest of the dispatch, during which no acks
    arrive.  So if one consumer out of 60,000 is ready, delivering a thousand messages to it does
    not check all others each time.  The original order continues as if it had delivered the
    messages itself.
    """

    def __init__(self, limit: i64) -> None:
        super().__init__([])
        #: The number of consumers checked.
        self.asked: i64 = 0
        self._room: i64 = limit
        #: The priorities with a ready consumer, the highest first.
        self._tiers: Final[list[AbleTier]] = []

    def gather(self, origin: RoundRobin) -> bool:
        """Add the ready consumers of one order; return whether the limit allows more."""
        tier: AbleTier | None = None
        consumers = origin.consumers
        size: i64 = len(consumers)
        place: i64 = origin.place
        left: i64 = size
        while left > 0 and self._room > 0:
            left -= 1
            if place >= size:
                place = 0
            consumer = consumers[place]
            if consumer.ready():
                if tier is None:
                    tier = AbleTier(origin)
                    self._tiers.append(tier)
                tier.consumers.append((consumer, int(place)))
                self._room -= 1
            place += 1
        self.asked += size - left
        return self._room > 0

    def has_more(self) -> bool:
        """Return whether `limit` was reached before all consumers were checked."""
        return self._room == 0

    def next(self) -> QueueConsumer | None:
        """Return the next consumer in turn that can take a message, or None."""
        tiers = self._tiers
        while tiers:
            tier = tiers[0]
            consumers = tier.consumers
            while consumers:
                if tier.place >= len(consumers):
                    tier.place = 0
                place = tier.place
                consumer, origin_place = consumers[place]
                if consumer.ready():
                    tier.place = place + 1
                    tier.origin.place = origin_place + 1
                    return consumer
                del consumers[place]
            del tiers[0]
        return None


@final
class Tiers:
    """Consumers by priority, the highest first, with a round-robin order for each."""

    def __init__(self) -> None:
        self.orders: Final[list[RoundRobin]] = []
        #: The priorities of the orders, negated so that they ascend.
        self._places: Final[list[int]] = []

    def of(self, priority: int) -> RoundRobin:
        """Return the round-robin order for a priority, creating it if necessary."""
        at = bisect_left(self._places, -priority)
        if at < len(self._places) and self._places[at] == -priority:
            return self.orders[at]
        new = RoundRobin([])
        self.orders.insert(at, new)
        self._places.insert(at, -priority)
        return new

    def put(self, consumer: QueueConsumer) -> None:
        """Add `consumer` behind the others of its priority."""
        self.of(consumer.priority).consumers.append(consumer)

    def remove(self, consumer: QueueConsumer) -> None:
        """Remove `consumer`."""
        tier = self.of(consumer.priority)
        place = place_of(consumer, tier.consumers)
        del tier.consumers[place]
        tier.removed(consumer, place)
        if not tier.consumers:
            at = bisect_left(self._places, -consumer.priority)
            del self.orders[at]
            del self._places[at]

    def highest(self) -> list[QueueConsumer]:
        """Return the consumers with the highest priority."""
        return self.orders[0].consumers if self.orders else []


class ConsumerPriorities(RoundRobin):
    """The order for several priorities: the ready consumers with the highest priority in turn."""

    def __init__(self, consumers: list[QueueConsumer], place: i64) -> None:
        super().__init__(consumers)
        self._by_priority: Final = Tiers()
        # All but the newest have the same priority, and some of them may already have had a turn.
        tier = self._by_priority.of(consumers[0].priority)
        tier.consumers = consumers[:-1]
        tier.place = place
        self._by_priority.put(consumers[-1])

    def added(self, consumer: QueueConsumer) -> RoundRobin:
        """Add `consumer` behind the others of its priority."""
        self._by_priority.put(consumer)
        return self

    def removed(self, consumer: QueueConsumer, place: i64) -> RoundRobin:
        """Remove `consumer`; return to plain round robin once only one priority is left."""
        self._by_priority.remove(consumer)
        if len(self._by_priority.orders) > 1:
            return self
        plain = RoundRobin(self.consumers)
        plain.place = self._by_priority.orders[0].place
        return plain

    def next(self) -> QueueConsumer | None:
        """Return the next ready consumer of the highest priority with a ready one, or None."""
        asked: i64 = 0
        for tier in self._by_priority.orders:
            consumer = tier.next()
            if consumer is not None:
                return consumer
            asked += len(tier.consumers)
            if asked >= _ASKED_MAX:
                # Not all consumers of this priority were checked, or those below are too many.
                break
        return None

    def orders(self) -> list[RoundRobin]:
        """Return the order of each priority, the highest first."""
        return self._by_priority.orders
