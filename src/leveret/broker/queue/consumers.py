"""The order of a queue's consumers: which of them gets the next message.

There are four orders, a class each: all in turn (`RoundRobin`), those of the highest priority in
turn (`ConsumerPriorities`), or one that gets everything (`SingleActive`), which may be another one
in each partition of a super stream (`PartitionActive`).  A queue begins with the plain one, and
`added` and `removed` return the order that holds from then on.

Invariants: `consumers` is the queue's own list, in the order of registration; with equal prefetch
no consumer is two messages ahead of another that could have taken more, also when others come and
go.

Source: behaviours 61 and 62.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from mypy_extensions import i64

if TYPE_CHECKING:
    from leveret.broker.queue.consumer import Consumer


def place_of(consumer: Consumer, consumers: list[Consumer]) -> i64:
    """Return the place of a consumer in a list, in which those that end are often the last."""
    last: i64 = len(consumers) - 1
    return last if consumers[last] is consumer else consumers.index(consumer)


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
        """Return the next consumer in turn that can take a message, or None."""
        consumers = self.consumers
        size: i64 = len(consumers)
        place: i64 = self.place
        tried: i64 = 0
        while tried < size:
            if place >= size:
                place = 0
            consumer = consumers[place]
            place += 1
            if consumer.ready():
                self.place = place
                return consumer
            tried += 1
        return None

    def has_ready(self) -> bool:
        """Return whether a consumer can take a message; the order does not change."""
        for consumer in self.consumers:
            if consumer.ready():
                return True
        return False

    def is_active(self, consumer: Consumer) -> bool:
        """Return whether `consumer` is one of those that may get messages now."""
        return True


class ConsumerPriorities(RoundRobin):
    """Consumers of several priorities: a lower one gets what no higher one can take."""

    def __init__(self, consumers: list[Consumer], place: i64) -> None:
        super().__init__(consumers)
        #: The order in each priority, the highest first; each has a list of its own.
        self.tiers: list[RoundRobin] = []
        #: The priorities of these with the other sign, so that they grow.
        self._places: list[int] = []
        for consumer in consumers:
            self._put(consumer)
        # All but the newest had one priority, and some of them had had their turn.
        self._tier(consumers[0].priority).place = place

    def _tier(self, priority: int) -> RoundRobin:
        """Return the order in a priority, made where it is new."""
        at = bisect_left(self._places, -priority)
        if at < len(self._places) and self._places[at] == -priority:
            return self.tiers[at]
        new = RoundRobin([])
        self.tiers.insert(at, new)
        self._places.insert(at, -priority)
        return new

    def _put(self, consumer: Consumer) -> None:
        self._tier(consumer.priority).consumers.append(consumer)

    def added(self, consumer: Consumer) -> RoundRobin:
        """Put `consumer` behind those of its priority."""
        self._put(consumer)
        return self

    def removed(self, consumer: Consumer, place: i64) -> RoundRobin:
        """Take `consumer` out; those left with one priority take turns again."""
        tier = self._tier(consumer.priority)
        mine: i64 = place_of(consumer, tier.consumers)
        del tier.consumers[mine]
        tier.removed(consumer, mine)
        if not tier.consumers:
            at = bisect_left(self._places, -consumer.priority)
            del self.tiers[at]
            del self._places[at]
        if len(self.tiers) > 1:
            return self
        plain = RoundRobin(self.consumers)
        plain.place = self.tiers[0].place
        return plain

    def next(self) -> Consumer | None:
        """Return the next one of the highest priority that has one ready, or None."""
        for tier in self.tiers:
            consumer = tier.next()
            if consumer is not None:
                return consumer
        return None


class SingleActive(RoundRobin):
    """One consumer gets everything; when it goes, or a higher priority comes, another does.

    The next one gets nothing while the one before it holds messages: what that one gives back must
    come first, or the order would break.
    """

    def __init__(self, consumers: list[Consumer]) -> None:
        super().__init__(consumers)
        self.active: Consumer | None = None
        #: The one that was active before, while it may hold messages still.
        self.before: Consumer | None = None

    def added(self, consumer: Consumer) -> RoundRobin:
        """Activate `consumer` if it is the first, or of a higher priority than the active one."""
        active = self.active
        if active is None or consumer.priority > active.priority:
            self._activate(consumer)
        return self

    def removed(self, consumer: Consumer, place: i64) -> RoundRobin:
        """Activate the next one: of the highest priority, the one that has been there longest."""
        if consumer is not self.active:
            return self
        best: Consumer | None = None
        for other in self.consumers:
            if best is None or other.priority > best.priority:
                best = other
        self._activate(best)
        return self

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

    def has_ready(self) -> bool:
        """Return whether the active consumer can take a message."""
        return self.next() is not None

    def is_active(self, consumer: Consumer) -> bool:
        """Return whether `consumer` is the active one."""
        return consumer is self.active


class PartitionActive(SingleActive):
    """One consumer of a partition, so that those who read all partitions share them.

    Of those of the highest priority partition n has the one at the place n, counted round.  Where
    they came in the same order to all partitions, each has its share; whoever comes or goes moves
    some of them.

    Source: RabbitMQ's single active consumers of super streams.
    """

    def __init__(self, consumers: list[Consumer], partition: i64) -> None:
        super().__init__(consumers)
        self.partition: i64 = partition

    def added(self, consumer: Consumer) -> RoundRobin:
        """Share anew."""
        self._share()
        return self

    def removed(self, consumer: Consumer, place: i64) -> RoundRobin:
        """Share anew."""
        self._share()
        return self

    def _share(self) -> None:
        best: list[Consumer] = []
        for consumer in self.consumers:
            if not best or consumer.priority > best[0].priority:
                best = [consumer]
            elif consumer.priority == best[0].priority:
                best.append(consumer)
        chosen = best[self.partition % len(best)] if best else None
        if chosen is not self.active:
            self._activate(chosen)
