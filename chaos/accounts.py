"""The accounts of a load: what was sent, promised, delivered and settled, per queue and message.

They are held outside the broker and count what is wrong instead of stopping at it, over any number
of messages and crashes.  A message's place in a queue is in one of four states:

    TRIED     sent, and not confirmed: it may be there or not
    KEPT      confirmed, or found after a crash: it must be there
    LEAVING   its ack was sent: it may come back once, marked
    GONE      its ack is durable, since something sent behind it was confirmed: never again

Invariants: the bytes of a message follow from its number alone, so nothing but numbers is kept;
after `settle` every place is gone, and whatever comes of it later is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from support.wire.raw_codec import decode_properties, properties

TRIED: Final = 0
KEPT: Final = 1
LEAVING: Final = 2
GONE: Final = 3

#: The size of a body, and of its beginning that says whose it is.
BODY_BYTES: Final = 1024
NAME_BYTES: Final = 16

#: The first faults are told in words.
FAULTS_MAX: Final = 20

_NOISE: Final = random.Random(1).randbytes(1 << 20)
_BLANK: Final = "@" * NAME_BYTES
_BEFORE, _AFTER = properties(
    headers={"load": "chaos", "long": 1 << 40}, delivery_mode=2, message_id=_BLANK
).split(_BLANK.encode())


def message(publisher: int, number: int) -> tuple[bytes, bytes]:
    """Return the property bytes and the body of a publisher's n-th message."""
    name = b"%03d-%012d" % (publisher, number)
    start = (publisher * 7919 + number * 104_729) % (len(_NOISE) - BODY_BYTES)
    return _BEFORE + name + _AFTER, name + _NOISE[start : start + BODY_BYTES - NAME_BYTES]


def name_of(body: bytes) -> tuple[int, int] | None:
    """Return whose message a body is and which, None where it does not say."""
    publisher, dash, number = body[:NAME_BYTES].partition(b"-")
    if not (dash and publisher.isdigit() and number.isdigit()):
        return None
    return int(publisher), int(number)


def same_properties(found: bytes, sent: bytes) -> bool:
    """Tell whether properties are as sent, but for what a quorum queue adds."""
    if found == sent:
        return True
    values = decode_properties(found)
    values.get("headers", {}).pop("x-delivery-count", None)
    return values == decode_properties(sent)


@dataclass
class Counts:
    """What the scoreboard asks for.

    `unmarked` are messages that came again and were not marked as redelivered, `returned` those
    that came again though their ack was durable, `disorder` those before an earlier one, `torn`
    those that reached one of their queues only.  `repeats` came again and said so: no fault.
    """

    confirmed: int = 0
    delivered: int = 0
    repeats: int = 0
    lost: int = 0
    phantom: int = 0
    altered: int = 0
    unmarked: int = 0
    returned: int = 0
    disorder: int = 0
    torn: int = 0
    other: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def violations(self) -> int:
        """All that is wrong and has no column of its own."""
        return self.unmarked + self.returned + self.disorder + self.torn + self.other

    def fault(self, text: str) -> None:
        """Tell of a fault, if it is among the first."""
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(text)


class Accounts:
    """All messages of one data directory; `counts` may be shared by several."""

    def __init__(self, queues: Sequence[str], counts: Counts) -> None:
        self.counts = counts
        self.places: dict[str, dict[tuple[int, int], int]] = {queue: {} for queue in queues}
        self.generation = 0
        self._seen: dict[str, set[tuple[int, int]]] = {queue: set() for queue in queues}
        self._last: dict[tuple[object, str, int], int] = {}
        self._next: dict[int, int] = {}
        #: The last number of each publisher before the last crash, and when all was settled.
        self._before: dict[int, int] = {}
        self._settled: dict[int, int] = {}
        self._units: dict[tuple[int, int], tuple[str, ...]] = {}

    # -- sending -----------------------------------------------------------------------------------

    def tried(self, publisher: int, queues: tuple[str, ...]) -> int:
        """Note that a message is about to be sent to these queues; return its number."""
        number = self._next.get(publisher, 1)
        self._next[publisher] = number + 1
        name = publisher, number
        for queue in queues:
            self.places[queue][name] = TRIED
        if len(queues) > 1:
            self._units[name] = queues
        return number

    def confirmed(self, publisher: int, number: int, queues: tuple[str, ...]) -> None:
        """Note a confirm."""
        self.counts.confirmed += 1
        name = publisher, number
        self._units.pop(name, None)
        for queue in queues:
            if self.places[queue][name] == TRIED:
                self.places[queue][name] = KEPT

    def leaving(self, queue: str, names: Iterable[tuple[int, int]]) -> None:
        """Note acks that are about to be sent."""
        places = self.places[queue]
        for name in names:
            places[name] = LEAVING

    def gone(self, queue: str, names: Iterable[tuple[int, int]]) -> None:
        """Note acks that are durable."""
        places = self.places[queue]
        for name in names:
            places[name] = GONE

    def crashed(self) -> None:
        """Note that the broker is dead: whatever it delivers from now on, it read from the disk."""
        self.generation += 1
        self._before = {publisher: number - 1 for publisher, number in self._next.items()}
        self._last.clear()

    # -- judging -----------------------------------------------------------------------------------

    def delivered(
        self, consumer: object, queue: str, raw_properties: bytes, body: bytes, redelivered: bool
    ) -> tuple[int, int] | None:
        """Judge a delivery; return which message it is, None where it is none of ours."""
        counts, name = self.counts, name_of(body)
        counts.delivered += 1
        state = None if name is None else self.places[queue].get(name)
        if name is None or state is None:
            self._stranger(queue, name, body)
            return None
        sent_properties, sent_body = message(*name)
        if body != sent_body or not same_properties(raw_properties, sent_properties):
            counts.altered += 1
            counts.fault(f"altered: {name} in {queue}")
        if state == GONE:
            counts.returned += 1
            counts.fault(f"back after a durable ack: {name} in {queue}")
        publisher, number = name
        if state == TRIED and number <= self._before.get(publisher, 0):
            self.places[queue][name] = KEPT
        self._judge_repeat(queue, name, redelivered)
        self._judge_order(consumer, queue, name)
        return name

    def _stranger(self, queue: str, name: tuple[int, int] | None, body: bytes) -> None:
        counts = self.counts
        if name is not None and name[1] <= self._settled.get(name[0], 0):
            counts.returned += 1
            counts.fault(f"back after the queue was drained: {name} in {queue}")
        else:
            counts.phantom += 1
            counts.fault(f"phantom: {name} in {queue}: {body[:40]!r}")

    def _judge_repeat(self, queue: str, name: tuple[int, int], redelivered: bool) -> None:
        if name not in self._seen[queue]:
            self._seen[queue].add(name)
        elif redelivered:
            self.counts.repeats += 1
        else:
            self.counts.unmarked += 1
            self.counts.fault(f"a repeat that does not say so: {name} in {queue}")

    def _judge_order(self, consumer: object, queue: str, name: tuple[int, int]) -> None:
        """One consumer of one start gets each publisher's messages in order: nobody requeues."""
        publisher, number = name
        key = consumer, queue, publisher
        if number <= self._last.get(key, 0):
            self.counts.disorder += 1
            self.counts.fault(f"out of order: {name} in {queue} after {self._last[key]}")
        self._last[key] = number

    def settle(self) -> None:
        """Judge what is left after all queues were emptied and all acks are durable."""
        for name, queues in self._units.items():
            states = [self.places[queue][name] for queue in queues]
            if KEPT in states and TRIED in states:
                self.counts.fault(f"torn: {name} is in one of its queues only")
                self.counts.torn += 1
        for queue, places in self.places.items():
            lost = sorted(name for name, state in places.items() if state == KEPT)
            self.counts.lost += len(lost)
            if lost:
                self.counts.fault(f"lost: {len(lost)} in {queue}, {lost[0]} to {lost[-1]}")
            places.clear()
            self._seen[queue].clear()
        self._units.clear()
        self._settled = {publisher: number - 1 for publisher, number in self._next.items()}
