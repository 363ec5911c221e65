"""The order of a queue's consumers: which of them gets the next message.

There are three orders, a class each: all in turn (`RoundRobin`), those of the highest priority in
turn (`ConsumerPriorities`), or one that gets everything (`SingleActive`).  A queue begins with the
plain one, and `added` and `removed` return the order that holds from then on.

Invariants: `consumers` is the queue's own list, in the order of registration; with equal prefetch
no consumer is two messages ahead of another that could have taken more, also when others come and
go.

Source: behaviours 61 and 62.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from leveret.broker.queue.consumer import Consumer


#: So many consumers are asked for each message; of more, all are asked once in a call (`able`).
_ASKED_MAX: Final = 64


def place_of(consumer: Consumer, consumers: list[Consumer]) -> i64:
    """Return the place of a consumer in a list, which has them in the order of their numbers."""
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
    """Round robin: each consumer that can take a message, in turn."""

    def __init__(self, consumers: list[Consumer]) -> None:
        self.consumers = consumers
        #: The place in the list of the consumer that is next.
        self.place: i64 = 0

    def added(self, consumer: Consumer) -> RoundRobin:
        """Add `consumer`, which was put at the end of the list; return the order from now on."""
        consumers = self.consumers
        if len(consumers) == 1 or consumer.priority == consumers[0].priority:
            return self
        return ConsumerPriorities(consumers, self.place)

    def removed(self, consumer: Consumer, place: i64) -> RoundRobin:
        """Take out `consumer`, which was at `place`; return the order from now on."""
        if place < self.place:
            self.place -= 1
        return self

    def next(self) -> Consumer | None:
        """Return the next consumer in turn that can take a message, or None.

        Of very many only the next ones are asked: None means then that `able` has to ask all.
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

    def _search(self, place: i64) -> Consumer | None:
        """Return the first consumer from `place` on that can take a message, or None.

        The one before `place` was asked already.
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
        """Return those that can take a message now, up to `limit`, after `next` returned None.

        Return None where `next` has asked all: nobody can.
        """
        if len(self.consumers) <= _ASKED_MAX:
            return None
        able = AbleConsumers(limit)
        for order in self.orders():
            if not able.gather(order):
                break
        return able

    def orders(self) -> list[RoundRobin]:
        """Return the orders that it consists of, the highest first."""
        return [self]

    def has_more(self) -> bool:
        """Return whether there may be others that can take a message when `next` returned None."""
        return False

    def has_ready(self) -> bool:
        """Return whether a consumer can take a message; the order does not change."""
        for consumer in self.consumers:
            if consumer.ready():
                return True
        return False

    def is_active(self, consumer: Consumer) -> bool:
        """Return whether `consumer` is one of those that may get messages now."""
        return True


@final
class AbleTier:
    """Those of one order that could take a message when they were asked."""

    def __init__(self, origin: RoundRobin) -> None:
        self.origin: Final = origin
        #: Each with its place in the order.
        self.consumers: Final[list[tuple[Consumer, int]]] = []
        self.place: i64 = 0


@final
class AbleConsumers(RoundRobin):
    """Those of very many consumers that can take a message, for one call of the queue's dispatch.

    Who cannot take any more is left out for the rest of the call, in which nobody gets new credit.
    So a thousand messages for the only one of 60,000 that has credit do not ask all others each
    time.  The order that they come from is kept, as if it had handed out the messages.
    """

    def __init__(self, limit: i64) -> None:
        super().__init__([])
        #: How many consumers were asked.
        self.asked: i64 = 0
        self._room: i64 = limit
        #: Of the order's priorities those in which somebody was ready, the highest first.
        self._tiers: Final[list[AbleTier]] = []

    def gather(self, origin: RoundRobin) -> bool:
        """Add those of one order; return whether there is room for more."""
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
        """Return whether not all were asked: there were so many that can take a message."""
        return self._room == 0

    def next(self) -> Consumer | None:
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
    """Consumers by their priority, the highest first; each has a round-robin order of its own."""

    def __init__(self) -> None:
        self.orders: Final[list[RoundRobin]] = []
        #: Their priorities with the other sign, so that they grow.
        self._places: Final[list[int]] = []

    def of(self, priority: int) -> RoundRobin:
        """Return the order in a priority, made where it is new."""
        at = bisect_left(self._places, -priority)
        if at < len(self._places) and self._places[at] == -priority:
            return self.orders[at]
        new = RoundRobin([])
        self.orders.insert(at, new)
        self._places.insert(at, -priority)
        return new

    def put(self, consumer: Consumer) -> None:
        """Put `consumer` behind those of its priority."""
        self.of(consumer.priority).consumers.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Take `consumer` out."""
        tier = self.of(consumer.priority)
        place = place_of(consumer, tier.consumers)
        del tier.consumers[place]
        tier.removed(consumer, place)
        if not tier.consumers:
            at = bisect_left(self._places, -consumer.priority)
            del self.orders[at]
            del self._places[at]

    def highest(self) -> list[Consumer]:
        """Return the consumers of the highest priority; an empty list where there are none."""
        return self.orders[0].consumers if self.orders else []


class ConsumerPriorities(RoundRobin):
    """Consumers of several priorities: a lower one gets what no higher one can take."""

    def __init__(self, consumers: list[Consumer], place: i64) -> None:
        super().__init__(consumers)
        self._by_priority: Final = Tiers()
        # All but the newest have one priority, and some of them have had their turn.
        tier = self._by_priority.of(consumers[0].priority)
        tier.consumers = consumers[:-1]
        tier.place = place
        self._by_priority.put(consumers[-1])

    def added(self, consumer: Consumer) -> RoundRobin:
        """Put `consumer` behind those of its priority."""
        self._by_priority.put(consumer)
        return self

    def removed(self, consumer: Consumer, place: i64) -> RoundRobin:
        """Take `consumer` out; those left with one priority take turns again."""
        self._by_priority.remove(consumer)
        if len(self._by_priority.orders) > 1:
            return self
        plain = RoundRobin(self.consumers)
        plain.place = self._by_priority.orders[0].place
        return plain

    def next(self) -> Consumer | None:
        """Return the next one of the highest priority that has one ready, or None."""
        asked: i64 = 0
        for tier in self._by_priority.orders:
            consumer = tier.next()
            if consumer is not None:
                return consumer
            asked += len(tier.consumers)
            if asked >= _ASKED_MAX:
                # It has more than were asked, or those of the lower ones are too many.
                break
        return None

    def orders(self) -> list[RoundRobin]:
        """Return the order of each priority, the highest first."""
        return self._by_priority.orders


class SingleActive(RoundRobin):
    """One consumer gets everything; when it goes, or a higher priority comes, another does.

    The next one gets nothing while the one before it holds messages: what that one gives back must
    come first, or the order would break.

    Those who read all partitions of a super stream share them.  Of the consumers of the highest
    priority, partition n has the one at the place n, counted round: where they came in the same
    order to all partitions, each has its share; whoever comes or goes moves some of them.

    Source: RabbitMQ's single active consumers, also of super streams.
    """

    def __init__(self, consumers: list[Consumer], partition: i64 = -1) -> None:
        super().__init__(consumers)
        #: Which partition it is; negative for what is none.
        self.partition: i64 = partition
        self.active: Consumer | None = None
        #: The one that was active before, while it may hold messages still.
        self.before: Consumer | None = None
        self._by_priority: Final = Tiers()
        for consumer in consumers:
            self._by_priority.put(consumer)

    def added(self, consumer: Consumer) -> RoundRobin:
        """Activate `consumer` if it is the first, or of a higher priority than the active one."""
        self._by_priority.put(consumer)
        active = self.active
        if self.partition >= 0:
            self._share()
        elif active is None or consumer.priority > active.priority:
            self._activate(consumer)
        return self

    def removed(self, consumer: Consumer, place: i64) -> RoundRobin:
        """Activate the next one: of the highest priority, the one that has been there longest."""
        self._by_priority.remove(consumer)
        if self.partition >= 0 or consumer is self.active:
            self._share()
        return self

    def _share(self) -> None:
        """Activate the consumer whose turn it is by its place."""
        best = self._by_priority.highest()
        chosen = best[max(self.partition, 0) % len(best)] if best else None
        if chosen is not self.active:
            self._activate(chosen)

    def _activate(self, consumer: Consumer | None) -> None:
        before = self.before
        if before is None or before.unacked_count == 0:
            # Otherwise the one that was active got nothing, and the one before it still counts.
            self.before = self.active
        self.active = consumer
        if consumer is self.before:
            # It is active again before anyone else got a message.
            self.before = None

    def next(self) -> Consumer | None:
        """Return the active consumer if it can take a message, or None."""
        before = self.before
        if before is not None:
            if before.unacked_count > 0:
                return None
            self.before = None
        active = self.active
        return active if active is not None and active.ready() else None

    def able(self, limit: i64) -> AbleConsumers | None:
        """Return None: `next` has asked the only one that may get a message."""
        return None

    def has_ready(self) -> bool:
        """Return whether the active consumer can take a message."""
        return self.next() is not None

    def is_active(self, consumer: Consumer) -> bool:
        """Return whether `consumer` is the active one."""
        return consumer is self.active
