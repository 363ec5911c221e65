"""The expected state of the messages of a crash test, and the check of their state after a restart.

Each message has a place in each of its queues, in one of these states:

    TRIED     sent but not confirmed: it may exist or not, but complete, and in all its queues
    KEPT      confirmed, or seen after a restart: it must exist
    LEAVING   its ack was sent: it may exist or not
    GONE      its ack is durable, or it was found missing: it must never exist again

Messages that are sent in one transaction, or to several queues at once, are one unit: all of it
exists or nothing.  Acks within the transaction belong to it.

Invariants: after `judge` no place is TRIED or LEAVING; every check is for one of the invariants I1
to I6 of a durable queue: lost, phantom, altered, back again, out of order, torn.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final, NoReturn

from support.crash.ledger import Ledger
from support.wire.raw_codec import decode_properties, properties

TRIED: Final = "tried"
KEPT: Final = "kept"
LEAVING: Final = "leaving"
GONE: Final = "gone"


class Violation(AssertionError):
    """A promise was broken; the text has the seed and the entries of the ledger."""


@dataclass
class Sent:
    """A sent message."""

    id: str
    publisher: str
    number: int
    digest: str
    lasting: bool
    places: dict[str, str] = field(default_factory=dict)


@dataclass
class Seen:
    """A message as received from a queue."""

    id: str
    digest: str
    redelivered: bool
    offset: int = -1


@dataclass
class Unit:
    """The content of one record: messages, and acks of (queue, message)."""

    sent: list[Sent]
    acks: list[tuple[str, str]] = field(default_factory=list)


def digest_of(raw_properties: bytes, body: bytes) -> str:
    """The digest of a message's property bytes and body."""
    return hashlib.sha256(raw_properties + b"|" + body).hexdigest()[:16]


def seen_of(raw_properties: bytes, body: bytes, redelivered: bool) -> Seen:
    """A message as received; the headers added by a stream are removed and stored apart."""
    values = decode_properties(raw_properties)
    offset = -1
    if "x-stream-offset" in values.get("headers", {}):
        offset = values["headers"].pop("x-stream-offset")
        values["headers"].pop("x-stream-timestamp")
        raw_properties = properties(**values)
    return Seen(values.get("message_id", "?"), digest_of(raw_properties, body), redelivered, offset)


class Book:
    """All messages of one test."""

    def __init__(self, seed: int, ledger: Ledger) -> None:
        self.seed = seed
        self.ledger = ledger
        self.sent: dict[str, Sent] = {}
        self.numbers: dict[str, int] = {}
        self.open: list[Unit] = []
        #: The order in which the messages of each queue were found, and their offsets.
        self.found: dict[str, list[str]] = {}
        self.offsets: dict[str, int] = {}
        self.delivered: dict[tuple[str, str], int] = {}
        self.confirms = 0

    def fail(self, what: str, word: str = "") -> NoReturn:
        """Raise a violation."""
        about = self.ledger.about(word) if word else str(self.ledger.path)
        raise Violation(f"seed {self.seed}: {what}\nledger {about}")

    # -- before and after sending ------------------------------------------------------------------

    def next_number(self, publisher: str) -> int:
        """The next number of a publisher."""
        self.numbers[publisher] = self.numbers.get(publisher, 0) + 1
        return self.numbers[publisher]

    def tried(self, unit: Unit) -> None:
        """Record a unit that is about to be sent."""
        words = [f"{one.id}:{one.digest}->{'+'.join(one.places) or '-'}" for one in unit.sent]
        acks = [f"ack:{queue}:{id_}" for queue, id_ in unit.acks]
        self.ledger.note("T", *[one.id for one in unit.sent], *words, *acks)
        for one in unit.sent:
            self.sent[one.id] = one
        for queue, id_ in unit.acks:
            self.sent[id_].places[queue] = LEAVING
        self.open.append(unit)

    def kept(self, unit: Unit) -> None:
        """Record that a unit was confirmed."""
        self.ledger.note("C", *[one.id for one in unit.sent])
        self.confirms += max(len(unit.sent), 1)
        self.open.remove(unit)
        self._resolve(unit, KEPT)
        for queue, id_ in unit.acks:
            self.sent[id_].places[queue] = GONE

    def _resolve(self, unit: Unit, state: str) -> None:
        for one in unit.sent:
            for queue, now in one.places.items():
                if now == TRIED:
                    one.places[queue] = state

    def leaving(self, queue: str, ids: list[str]) -> None:
        """Record acks that are about to be sent."""
        self.ledger.note("A", queue, *ids)
        for id_ in ids:
            self.sent[id_].places[queue] = LEAVING

    def gone(self, queue: str, ids: list[str]) -> None:
        """Record acks that are durable now."""
        self.ledger.note("D", queue, *ids)
        for id_ in ids:
            self.sent[id_].places[queue] = GONE

    # -- checks ------------------------------------------------------------------------------------

    def check(self, queue: str, seen: Seen) -> Sent:
        """Check one message received from a queue; return the sent message."""
        one = self.sent.get(seen.id)
        if one is None or queue not in one.places:
            self.fail(f"phantom: {seen} in {queue} was never sent there", seen.id)
        if one.digest != seen.digest:
            self.fail(f"altered: {seen} in {queue}, sent {one}", seen.id)
        if one.places[queue] == GONE:
            self.fail(f"back again: {seen} in {queue}, though its ack was durable", seen.id)
        return one

    def check_order(self, queue: str, seen: Seen) -> None:
        """Check the order of one consumer's deliveries: per publisher, without repeats."""
        one = self.check(queue, seen)
        if seen.redelivered:
            return
        key = queue, one.publisher
        if one.number <= self.delivered.get(key, 0):
            self.fail(f"out of order: {one} in {queue}", one.id)
        self.delivered[key] = one.number

    def judge(self, queues: dict[str, list[Seen]], *, crashed: bool) -> None:
        """Check the whole content of all queues after a restart, and settle the open states."""
        for queue, seen in queues.items():
            self._judge_queue(queue, seen, crashed)
        there = {queue: {one.id for one in seen} for queue, seen in queues.items()}
        for unit in self.open:
            self._judge_unit(unit, there)
        self.open.clear()
        for one in self.sent.values():
            for queue, state in one.places.items():
                found = one.id in there[queue]
                if state == KEPT and not found and (one.lasting or not crashed):
                    self.fail(f"lost: {one} is not in {queue}", one.id)
                one.places[queue] = KEPT if found else GONE
        self.found = {queue: [one.id for one in seen] for queue, seen in queues.items()}
        self.delivered.clear()

    def _judge_queue(self, queue: str, seen: list[Seen], crashed: bool) -> None:
        last: dict[str, int] = {}
        ids = [message.id for message in seen]
        if len(set(ids)) != len(ids):
            twice = next(id_ for id_ in ids if ids.count(id_) > 1)
            self.fail(f"twice in {queue}: {twice}", twice)
        for message in seen:
            one = self.check(queue, message)
            if crashed and not one.lasting:
                self.fail(f"a transient message survived a crash: {one} in {queue}", one.id)
            if message.offset < 0 and crashed and not message.redelivered:
                self.fail(f"not marked as redelivered: {message} in {queue}", one.id)
            if one.number <= last.get(one.publisher, 0):
                self.fail(f"out of order: {one} in {queue}", one.id)
            last[one.publisher] = one.number
            if message.offset >= 0 and self.offsets.setdefault(one.id, message.offset) != (
                message.offset
            ):
                self.fail(f"another offset: {message}, before {self.offsets[one.id]}", one.id)
        known = [id_ for id_ in self.found.get(queue, []) if id_ in set(ids)]
        if known != [id_ for id_ in ids if id_ in set(known)]:
            self.fail(f"{queue} was found in another order than before")
        offsets = [message.offset for message in seen if message.offset >= 0]
        if offsets and offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            self.fail(f"the offsets of {queue} have gaps: {offsets}")

    def _judge_unit(self, unit: Unit, there: dict[str, set[str]]) -> None:
        """Check that all of a record exists, or nothing."""
        found = [
            one.id in there[queue]
            for one in unit.sent
            if one.lasting
            for queue, state in one.places.items()
            if state == TRIED
        ]
        found += [id_ not in there[queue] for queue, id_ in unit.acks]
        if any(found) and not all(found):
            self.fail(f"torn: a part of {unit} survived", unit.sent[0].id)
