"""The expected state of messages that may be dead-lettered, and the check of it after a restart.

A message is published to the queue `work`, which dead-letters to the queue `dead`.  Both are
durable, so one journal record moves a dead letter: at any time it is in exactly one of the queues.
A stream gets each dead letter too, by the same record.

Invariants: a message that was confirmed, or seen after a restart, is in `work` or in `dead`, or its
ack was sent; an ack, a reject or a requeue that a later confirm on the same connection made durable
stays so; body, properties and headers are as sent, except for the correct changes by
dead-lettering.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from support.crash.kill_book import Violation
from support.crash.ledger import Ledger
from support.wire import raw

WORK: Final = "work"
DEAD: Final = "dead"

#: The max length of `work`.
LENGTH_MAX: Final = 40
DELIVERY_LIMIT: Final = 2

#: The progress of a settlement.
NO: Final = 0
SENT: Final = 1
DURABLE: Final = 2

REASONS: Final = ("rejected", "expired", "maxlen", "delivery_limit")
_ENDS: Final = [f"x-{which}-death-{what}" for which in ("first", "last") for what in
                ("reason", "queue", "exchange")]  # fmt: skip


@dataclass
class Letter:
    """A message that was sent to `work`."""

    id: str
    number: int
    values: dict[str, Any]
    digest: str
    #: It must exist: confirmed, or seen after a restart.
    kept: bool = False
    #: Its ack from `work` or from `dead` was sent, or is durable.
    acked: int = NO
    #: A reject was sent; a requeue beyond the delivery limit was sent; or either is durable.
    rejected: int = NO
    exceeded: int = NO
    #: The counts that its requeues may have reached, and have certainly reached.
    returns_sent: int = 0
    returns_durable: int = 0
    #: It was delivered to the consumer.
    delivered: bool = False
    #: A restart found it in `dead`.
    buried: bool = False
    #: A restart found it nowhere, or its ack is durable.
    gone: bool = False


@dataclass
class Found:
    """A message as received from a queue."""

    values: dict[str, Any]
    digest: str
    redelivered: bool

    @property
    def id(self) -> str:
        """The id of the message."""
        return str(self.values.get("message_id", "?"))


def digest_of(body: bytes) -> str:
    """The digest of a body."""
    return hashlib.sha256(body).hexdigest()[:16]


def found_of(got: raw.Method) -> Found:
    """A message as received."""
    return Found(raw.decode_properties(got.properties), digest_of(got.body), got.redelivered)


@dataclass
class LetterBook:
    """All messages of one test."""

    seed: int
    ledger: Ledger
    #: Whether the oldest message is delivered first, whatever its priority.
    in_order: bool = True
    sent: dict[str, Letter] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    #: Confirms and deliveries so far, which decide the time of a kill.
    events: int = 0
    returned: int = 0

    def fail(self, what: str, id_: str) -> NoReturn:
        """Raise a violation."""
        raise Violation(f"seed {self.seed}: {what}\nledger {self.ledger.about(id_)}")

    def known(self, found: Found) -> Letter:
        """Return the sent message, which must not be gone."""
        one = self.sent.get(found.id)
        if one is None:
            self.fail(f"phantom: {found} was never sent", found.id)
        if one.digest != found.digest:
            self.fail(f"altered: {found}, sent {one}", one.id)
        if one.gone:
            self.fail(f"back again: {found}, sent {one}", one.id)
        return one

    # -- received messages -------------------------------------------------------------------------

    def check_waiting(self, found: Found) -> Letter:
        """Check a message from `work`; its count must be a possible one."""
        one = self.known(found)
        headers = dict(found.values["headers"])
        count = headers.pop("x-delivery-count", 0)
        headers.pop("x-acquired-count", None)
        if found.values | {"headers": headers} != one.values:
            self.fail(f"altered: {found}, sent {one}", one.id)
        if one.buried or DURABLE in (one.rejected, one.exceeded):
            self.fail(f"back from the dead: {found}, {one}", one.id)
        if count > min(one.returns_sent, DELIVERY_LIMIT):
            self.fail(f"a count of {count} that it cannot have: {one}", one.id)
        return one

    def check_count(self, found: Found) -> int:
        """Check and return the count of a delivery, which browsing does not show."""
        one = self.check_waiting(found)
        count = int(found.values["headers"].get("x-delivery-count", 0))
        if count < one.returns_durable:
            self.fail(f"a count of {count}, and {one.returns_durable} were durable", one.id)
        return count

    def check_dead(self, found: Found) -> Letter:
        """Check a message from `dead`: it was dead-lettered once, and nothing else changed."""
        one = self.known(found)
        headers = dict(found.values["headers"])
        headers.pop("x-acquired-count", None)
        headers.pop("x-delivery-count", None)
        deaths = headers.pop("x-death", [])
        if len(deaths) != 1:
            self.fail(f"not one death: {found}", one.id)
        death = dict(deaths[0])
        reason = death["reason"]
        del death["time"]
        ends = [headers.pop(name, None) for name in _ENDS]
        right = {
            "count": 1,
            "reason": reason,
            "queue": WORK,
            "exchange": "",
            "routing-keys": [WORK],
        }
        expected = dict(one.values)
        if "expiration" in expected:
            right["original-expiration"] = expected.pop("expiration")
        if death != right or ends != [reason, WORK, ""] * 2:
            self.fail(f"a wrong death: {found}", one.id)
        if found.values | {"headers": headers} != expected:
            self.fail(f"altered: {found}, sent {one}", one.id)
        if not self._may_die(one, reason):
            self.fail(f"no cause to die as {reason}: {one}", one.id)
        self.reasons[reason] += 1
        return one

    def _may_die(self, one: Letter, reason: str) -> bool:
        """Whether there was a reason for dead-lettering.  Max length drops only the head."""
        older = one.number if self.in_order else 1
        causes = {
            "expired": "expiration" in one.values,
            "rejected": one.rejected != NO,
            "delivery_limit": one.exceeded != NO,
            "maxlen": older + LENGTH_MAX <= len(self.sent),
        }
        return causes[reason]

    # -- after a restart ---------------------------------------------------------------------------

    def judge(
        self, waiting: list[Found], dead: list[Found], logged: list[str], still: list[Found]
    ) -> None:
        """Check the queues after a restart and settle the open states.

        They were read in the order of the parameters.  A message dead-lettered in the meantime is
        in the first two, and must not be in the last, the ready messages after reading the others.
        """
        places: dict[str, str] = {}
        for found in waiting:
            places[self.check_waiting(found).id] = WORK
        numbers = [self.sent[found.id].number for found in waiting]
        if numbers != sorted(set(numbers)):
            self.fail(f"out of order, or twice: {numbers}", WORK)
        for found in dead:
            if places.get(self.check_dead(found).id) == DEAD:
                self.fail(f"twice in {DEAD}: {found}", found.id)
            places[found.id] = DEAD
        for found in still:
            if places.get(found.id) != WORK:
                self.fail(f"in both queues, or only now in one: {found}", found.id)
        self._judge_log(logged, places, {found.id for found in still})
        for one in self.sent.values():
            self._settle(one, places.get(one.id))

    def _judge_log(self, logged: list[str], places: dict[str, str], still: set[str]) -> None:
        """Check that the stream has each present or past message of `dead` once, and no others."""
        ids = set(logged)
        if len(ids) != len(logged):
            self.fail(f"twice in the stream: {logged}", WORK)
        for one in self.sent.values():
            if (one.buried or places.get(one.id) == DEAD) and one.id not in ids:
                self.fail(f"in {DEAD} and not in the stream: {one}", one.id)
        if ids & still or not ids <= set(self.sent):
            self.fail(f"in the stream, and still waiting or never sent: {ids & still}", WORK)

    def _settle(self, one: Letter, place: str | None) -> None:
        if place is None:
            if one.kept and not one.gone and one.acked == NO:
                self.fail(f"lost: {one}", one.id)
            one.gone = True
            return
        if one.acked == DURABLE:
            self.fail(f"back again in {place}: {one}", one.id)
        one.kept = True
        one.acked = NO
        one.buried = place == DEAD
        if place == WORK:
            one.rejected = one.exceeded = NO
