"""Dead-lettering of messages that expired, were rejected, failed too often or exceeded max length.

Such a message is published to its queue's dead-letter exchange, with the headers of RabbitMQ:
`x-death`, `x-first-death-*` and `x-last-death-*` give its origin and the reason.  The move is one
record of the journal.  So after a crash, a dead-lettered message is either in its old queue or in
its new ones.

Source: behaviours 68 to 72 (x-death, cycles, missing exchanges, headers).  An `x-death` that a
publisher set is replaced and not read.

A dead-lettered message for more than `FAN_OUT_COPIES` queues is published in parts, each with its
own record, like a message from a client.  The last part removes it from its old queue.  After a
crash before that, it is in its old queue and in some of the new ones.

Invariants: a dead-lettered message is in no queue until it is moved, but a checkpoint finds it in
its queue's `out`; with the strategy `at-least-once` it stays there until a queue takes it.

The broker dead-letters a limited number of messages by itself (because they expire or exceed the
max length).  A message that a client published or rejected may become DEAD_LETTER_COPIES_MAX dead
letters.  Each copy's address contains the number left, and each death divides that number among its
copies.  So neither fan-outs nor chains of queues can exceed the limit.  The limit counts the queues
that take a copy, after alternate exchanges, bindings between exchanges and delays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.cc_bcc import CC_VOID, blind_copies, carbon_copies, has_copies
from leveret.broker.attributes.dead_letter_copies import COPIES, MEMORY, shared
from leveret.broker.attributes.death_reasons import REASON_REJECTED
from leveret.broker.queue.queue import QueueHost
from leveret.broker.queue.target import Target, copies_at_once
from leveret.broker.queue.tracing import note_dropped_copies
from leveret.broker.scheduler.costs import DEAD_LETTER, DEATH, DEATH_KEYS_PER_COST
from leveret.broker.scheduler.effects import DeadMessage
from leveret.broker.scheduler.timers import Timed
from leveret.limits import (
    DEAD_LETTER_COPIES_MAX,
    DEATHS_BYTES_MAX,
    DEATHS_LISTED_MAX,
    FAN_OUT_COPIES,
    TABLE_BYTES_PER_COST,
)
from leveret.message import ALL_LETTERS, Address, Message
from leveret.wire.buffer import BytesWriter, write_i32_be, write_i64_be
from leveret.wire.edit import edit_headers, without_property
from leveret.wire.primitives import write_longstr, write_shortstr
from leveret.wire.properties import EXPIRATION, property_expiration, property_headers
from leveret.wire.tables import Timestamp, patch_length

if TYPE_CHECKING:
    from leveret.broker.queue.waiting import WaitingQueue

#: The maximum number of routing keys in a dead letter's `x-death`.  Each death reads and writes all
#: of them.
_DEATH_KEYS_LISTED_MAX: Final = 2048

#: The delay before an unrouted dead letter is offered again (dead-letter strategy at-least-once).
DEAD_LETTER_RETRY_MS: Final = 1000


#: The sequence in an event about a message that was in no queue.
_NO_SEQUENCE: Final = -1


@final
class Death:
    """One entry of `x-death`: the number of deaths in a queue for a reason."""

    def __init__(
        self,
        queue: str,
        reason: str,
        count: i64,
        time_seconds: i64,
        exchange: str,
        routing_keys: list[str],
        expiration: str | None,
    ) -> None:
        self.queue = queue
        self.reason = reason
        self.count: i64 = count
        self.time_seconds: i64 = time_seconds
        self.exchange = exchange
        self.routing_keys = routing_keys
        self.expiration = expiration

    def size(self) -> i64:
        """Return the approximate size of the entry in bytes."""
        size: i64 = 128 + len(self.queue) + len(self.exchange)
        for key in self.routing_keys:
            size += 5 + len(key)
        return size

    def write(self, w: BytesWriter) -> None:
        """Append the entry as a table with its type letter and its length."""
        w.append(0x46)  # F
        start: i64 = len(w)
        write_i32_be(w, 0)
        _number(w, "count", 0x6C, self.count)  # l
        _text(w, "reason", self.reason)
        _text(w, "queue", self.queue)
        _number(w, "time", 0x54, self.time_seconds)  # T
        _text(w, "exchange", self.exchange)
        _keys(w, self.routing_keys)
        if self.expiration is not None:
            _text(w, "original-expiration", self.expiration)
        patch_length(w, start, i64(len(w)) - start - 4)


def _number(w: BytesWriter, name: str, kind: i64, value: i64) -> None:
    write_shortstr(w, name)
    w.append(int(kind))
    write_i64_be(w, value)


def _text(w: BytesWriter, name: str, value: str) -> None:
    write_shortstr(w, name)
    w.append(0x53)  # S
    write_longstr(w, value.encode("utf-8", "surrogateescape"))


def _keys(w: BytesWriter, keys: list[str]) -> None:
    write_shortstr(w, "routing-keys")
    w.append(0x41)  # A
    start: i64 = len(w)
    write_i32_be(w, 0)
    for key in keys:
        w.append(0x53)  # S
        write_longstr(w, key.encode("utf-8", "surrogateescape"))
    patch_length(w, start, i64(len(w)) - start - 4)


def read_deaths(headers: dict[str, object]) -> list[Death]:
    """Return the entries of an `x-death` that this broker wrote, the newest first."""
    listed = headers.get("x-death")
    if not isinstance(listed, list):
        return []
    return [_read_death(entry) for entry in listed if isinstance(entry, dict)]


def _read_death(entry: dict[str, object]) -> Death:
    count = entry.get("count")
    time = entry.get("time")
    keys = entry.get("routing-keys")
    expiration = entry.get("original-expiration")
    return Death(
        _str(entry.get("queue")),
        _str(entry.get("reason")),
        count if isinstance(count, int) else 0,
        time.seconds if isinstance(time, Timestamp) else 0,
        _str(entry.get("exchange")),
        [_str(key) for key in keys] if isinstance(keys, list) else [],
        _str(expiration) if expiration is not None else None,
    )


def _str(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else ""


def _listed(deaths: list[Death]) -> list[Death]:
    """Return the newest deaths that a dead letter lists, at least one."""
    keys: i64 = 0
    size: i64 = 0
    place: i64 = 0
    for death in deaths:
        keys += len(death.routing_keys)
        size += death.size()
        if place > 0 and (
            place == DEATHS_LISTED_MAX or keys > _DEATH_KEYS_LISTED_MAX or size > DEATHS_BYTES_MAX
        ):
            break
        place += 1
    return deaths[:place]


def _cost_of(deaths: list[Death]) -> i64:
    """Return the cost of reading and writing all deaths but the newest."""
    if len(deaths) == 1:
        return 0
    keys: i64 = 0
    for death in deaths:
        keys += len(death.routing_keys)
    return DEATH * (len(deaths) - 1) + keys // DEATH_KEYS_PER_COST


def _is_cycle(queue: str, deaths: list[Death]) -> bool:
    """Return whether a message returns to `queue` without a reject on the way.

    Source: behaviour 69 (dead-letter cycles).
    """
    for death in deaths:
        if death.reason == REASON_REJECTED:
            return False
        if death.queue == queue:
            return True
    return False


@final
class Spread:
    """The progress of publishing a dead letter to thousands of queues."""

    def __init__(self, letter: Message, targets: list[Target]) -> None:
        self.letter: Final = letter
        self.targets: Final = targets
        #: The number of queues that have received it, and the number of queues per journal record.
        self.place: i64 = 0
        self.size: i64 = copies_at_once(letter, targets)


@final
class DeadLetter(DeadMessage):
    """A message being moved from its queue to a dead-letter exchange."""

    def __init__(
        self,
        queue: WaitingQueue,
        sequence: i64,
        message: Message,
        reason: str,
        was_queued: bool = True,
    ) -> None:
        self.queue = queue
        #: Its sequence in the queue, meaningless unless `was_queued`.
        self.sequence: i64 = sequence
        #: False for a message that the queue refused.
        self.was_queued = was_queued
        self.message = message
        self.reason = reason
        self.retry: LetterRetry | None = None
        #: The progress of publishing to thousands of queues, in parts.
        self._spread: Spread | None = None

    def dead_letter(self) -> Iterator[int] | None:
        """Move the message; for thousands of queues, return a generator for the rest of the work.

        Without a dead-letter exchange it is dropped (behaviour 70: missing exchange).
        """
        if self._spread is not None:
            return self._go_on(self._spread)
        queue = self.queue
        core = queue.core
        vhost = queue.vhost
        name = queue.settings.dead_letter_exchange
        core.scheduler.spent += 1
        if vhost is None or name is None or queue.deleted or not vhost.has_exchange(name):
            if name is None or queue.deleted or not self._wait():
                self._leave()
            return None
        letters_left = self._letters_left()
        if letters_left == 0:
            self._drop(1, COPIES)
            self._leave()
            return None
        deaths, keys = self._history()
        properties = self._properties(deaths)
        core.scheduler.spent += DEAD_LETTER + _cost_of(deaths)
        # The headers are read and rewritten.
        core.scheduler.spent += len(self.message.properties) // TABLE_BYTES_PER_COST
        if queue.settings.dead_letter_routing_key is not None:
            keys = [queue.settings.dead_letter_routing_key]
        else:
            keys = keys + blind_copies(self.message.address)
        routing = vhost.route_letter(name, keys[0], keys[1:], properties)
        matched = routing.targets
        targets = [target for target in matched if not _is_cycle(target.name, deaths)]
        most: i64 = len(targets)
        if letters_left != ALL_LETTERS:
            most = 1 if core.memory.overfull else letters_left
        letter = self._letter(properties, name, shared(letters_left, len(targets)))
        full = [target for target in targets if target.checks_admission and target.is_full(letter)]
        if (not matched or full) and self._wait():
            return None
        if len(targets) > most:
            self._drop(len(targets) - most, MEMORY if core.memory.overfull else COPIES)
            targets = targets[:most]
        if queue.settings.at_least_once and targets:
            core.counts.letters_confirmed += 1
        if len(targets) > FAN_OUT_COPIES:
            self._spread = Spread(letter, targets)
            return self._go_on(self._spread)
        core.scheduler.spent += len(targets)
        self._hand_over(vhost, letter, targets)
        return None

    def _hand_over(self, vhost: QueueHost, letter: Message, targets: list[Target]) -> None:
        """Put the dead letter into queues, and remove the message from its queue, in one record."""
        if self.was_queued:
            vhost.move(self.queue, self.sequence, self.message, letter, targets)
        else:
            vhost.put(letter, targets)

    def _go_on(self, spread: Spread) -> Iterator[int]:
        """Publish to thousands of queues in parts, until one of them is full."""
        vhost = self.queue.vhost
        assert vhost is not None
        letter = spread.letter
        while spread.place < len(spread.targets):
            part = spread.targets[spread.place : spread.place + spread.size]
            part = [target for target in part if not target.deleted]
            full = [target for target in part if target.checks_admission and target.is_full(letter)]
            if full and self._wait():
                return
            spread.place += spread.size
            if spread.place < len(spread.targets):
                vhost.put(letter, part)
            else:
                self._hand_over(vhost, letter, part)
            yield 1 + len(part)

    def _leave(self) -> None:
        """Remove the message from its queue, if it was queued."""
        if self.was_queued:
            self.queue.moved(self.sequence, self.message, False)

    def _letters_left(self) -> i64:
        """Return the number of copies the broker may still make by itself, or ALL_LETTERS.

        A reject starts a new count, as the publish did.
        """
        if self.reason == REASON_REJECTED:
            return ALL_LETTERS
        left = self.message.address.letters_left
        return DEAD_LETTER_COPIES_MAX if left == ALL_LETTERS else left

    def _drop(self, count: i64, reason: str) -> None:
        """Count copies that are dropped, and record the event."""
        queue = self.queue
        dropped = queue.core.letters_dropped
        if reason == MEMORY:
            dropped.memory += count
        else:
            dropped.copies += count
        dropped.vhost = queue.vhost.name if queue.vhost is not None else ""
        dropped.queue = queue.name
        sequence = self.sequence if self.was_queued else _NO_SEQUENCE
        if (sequence & queue.core.event_mask) == 0:
            note_dropped_copies(queue, sequence, self.message, reason, count)

    def letter_to(self, exchange: str) -> Message:
        """Return the dead letter for an exchange other than the one in the queue's settings."""
        deaths, _ = self._history()
        return self._letter(self._properties(deaths), exchange, ALL_LETTERS)

    def _wait(self) -> bool:
        """With `at-least-once`, set the timer for a retry and return True."""
        if not self.queue.settings.at_least_once or not self.was_queued:
            return False
        if self.retry is None:
            self.retry = LetterRetry(self)
        core = self.queue.core
        core.timers.set(self.retry, core.now_ms + DEAD_LETTER_RETRY_MS)
        return True

    def died_in(self) -> str:
        """Return the queue's name for the headers, or "" for an unroutable staged message."""
        return "" if self.queue.hidden else self.queue.name

    def _history(self) -> tuple[list[Death], list[str]]:
        """Return all deaths including this one, the newest first, and the routing keys."""
        message = self.message
        headers = property_headers(message.properties) or {}
        keys = [message.address.routing_key.decode("utf-8", "surrogateescape")]
        keys += carbon_copies(message)
        deaths = read_deaths(headers) if message.died else []
        death = Death(
            self.died_in(),
            self.reason,
            1,
            self.queue.core.now_ms // 1000,
            message.address.exchange.decode("utf-8", "surrogateescape"),
            keys,
            property_expiration(message.properties),
        )
        for place, older in enumerate(deaths):
            if older.queue == death.queue and older.reason == death.reason:
                older.count += 1
                del deaths[place]
                death = older
                break
        return _listed([death, *deaths]), keys

    def _properties(self, deaths: list[Death]) -> bytes:
        """Return the properties of the dead-lettered message."""
        message = self.message
        source = message.address.exchange.decode("utf-8", "surrogateescape")
        drop = [
            b"x-death",
            b"x-last-death-reason",
            b"x-last-death-queue",
            b"x-last-death-exchange",
        ]
        w = BytesWriter()
        if not message.died:
            drop += [b"x-first-death-reason", b"x-first-death-queue", b"x-first-death-exchange"]
            _write_end(w, "first", self.reason, self.died_in(), source)
        _write_end(w, "last", self.reason, self.died_in(), source)
        write_shortstr(w, "x-death")
        w.append(0x41)  # A
        start: i64 = len(w)
        write_i32_be(w, 0)
        for death in deaths:
            death.write(w)
        patch_length(w, start, i64(len(w)) - start - 4)
        properties = edit_headers(message.properties, drop, {}, w.getvalue())
        return without_property(properties, EXPIRATION)

    def _letter(self, properties: bytes, exchange: str, letters_left: i64) -> Message:
        """Return the dead-lettered message."""
        message = self.message
        routing_key = message.address.routing_key
        blind = message.address.blind
        own_key = self.queue.settings.dead_letter_routing_key
        if own_key is not None:
            routing_key = own_key.encode("utf-8", "surrogateescape")
            blind = CC_VOID if has_copies(properties) else b""
        name = exchange.encode("utf-8", "surrogateescape")
        if blind:
            address = Address(name, routing_key, blind, letters_left)
        else:
            address = self._address(name, routing_key, letters_left)
        return message.copied(address, properties, self.queue.core.now_ms, died=True)

    def _address(self, exchange: bytes, routing_key: bytes, letters_left: i64) -> Address:
        """Return an address without blind copies; reuse that of the last dead letter if equal.

        Most are equal, and small messages that share an address take a quarter less memory.
        """
        queue = self.queue
        known = queue.letter_address
        if (
            known is not None
            and known.letters_left == letters_left
            and known.routing_key == routing_key
            and known.exchange == exchange
        ):
            return known
        address = Address(exchange, routing_key, b"", letters_left)
        queue.letter_address = address
        return address


def _write_end(w: BytesWriter, which: str, reason: str, queue: str, exchange: str) -> None:
    """Append the three headers about the first or the last death."""
    _text(w, f"x-{which}-death-reason", reason)
    _text(w, f"x-{which}-death-queue", queue)
    _text(w, f"x-{which}-death-exchange", exchange)


@final
class LetterRetry(Timed):
    """The retry timer of a dead letter that no queue has taken yet (strategy `at-least-once`)."""

    def __init__(self, letter: DeadLetter) -> None:
        super().__init__()
        self.letter = letter

    def due(self, now_ms: i64) -> None:
        """Try again after the scheduler's current deliveries."""
        self.letter.queue.scheduler.letters.add(self.letter)
