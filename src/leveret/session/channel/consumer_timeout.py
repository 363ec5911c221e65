"""The consumer timeout (the time limit for acks), which finds deliveries unacked for too long.

Deliveries store no time, because that would make each of them more expensive.  Instead, a note
records the newest delivery tag of a channel at one time, and the age of a delivery is that of the
first note that covers its tag.  The connection adds notes when it writes deliveries (`AckClock`),
at most 64 within the shortest limit.  If a channel has many notes, some are dropped, more of the
older ones.  So a limit never takes effect early, and is late by at most a 32nd of its length.  If
thousands of deliveries are older than the shortest limit but have longer limits of their own, a
check examines them in parts, and the next check waits longer: with a million of them, half a
minute.

Invariants: notes grow in time and tag; a channel without unacked deliveries has none.

Source: behaviour 64 (consumer ack timeout), and RabbitMQ 4.3's quorum queues; the text is
RabbitMQ's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.settings import QueueSettings
from leveret.broker.consumers.consumer import QueueConsumer, Source
from leveret.broker.core import Core
from leveret.broker.scheduler.costs import LOOKS_PER_COST
from leveret.broker.scheduler.task import Task
from leveret.broker.scheduler.timers import Timed
from leveret.clock import NO_DEADLINE
from leveret.errors import PreconditionFailed
from leveret.session.channel.unacked import Unacked, UnackedList
from leveret.session.connection_base import ConnectionBase
from leveret.session.states import HALT_SYNC, HALT_TURN, HALT_WORK

if TYPE_CHECKING:
    from leveret.session.channel.channel import ServerChannel

#: The number of notes of one channel above which they are thinned out.
_NOTES_MAX: Final = 256

#: After notes were dropped, the age of a delivery is wrong by at most one part in this many.
_PARTS: Final = 64

#: The number of deliveries that a check examines before it yields to other work.
_LOOKED_AT: Final = 1024

#: A note is added at most this often within the shortest limit, and at most once per
#: `_NOTES_APART_MS`.
_NOTES_PER_LIMIT: Final = 64
_NOTES_APART_MS: Final = 10

#: A check delays the next one by 1 ms for this many deliveries that it examined, so that one
#: consumer's limit of 1 ms does not cause all other deliveries to be checked every ms.
_LOOKED_AT_PER_MS: Final = 32


@final
class ConsumerTimeout:
    """The ages of one channel's unacked deliveries."""

    def __init__(self, unacked: UnackedList) -> None:
        self._unacked = unacked
        #: Times (ms of `core.now_ms`), each with the newest tag at that time.
        self.notes: list[tuple[int, int]] = []
        self._notes_max: i64 = _NOTES_MAX
        #: The earliest time at which a delivery can exceed its limit, found by the last check.
        self.next_ms: i64 = NO_DEADLINE

    def note(self, newest_tag: i64, now_ms: i64) -> None:
        """Note the newest tag, and drop the notes that cover only settled deliveries."""
        notes = self.notes
        oldest = self._unacked.oldest()
        if oldest is None:
            notes.clear()
            return
        past: i64 = 0
        for note in notes:
            if note[1] >= oldest.tag:
                break
            past += 1
        del notes[:past]
        if notes and notes[-1][0] == now_ms:
            notes.pop()
        if not notes or newest_tag > notes[-1][1]:
            notes.append((int(now_ms), int(newest_tag)))
            if len(notes) > self._notes_max:
                self._thin_out(now_ms)

    def _thin_out(self, now_ms: i64) -> None:
        """Drop notes, making deliveries seem younger by at most a 64th of their age."""
        notes = self.notes
        kept = [notes[0]]
        place: i64 = 1
        last: i64 = len(notes) - 1
        while place < last:
            apart: i64 = notes[place + 1][0] - kept[-1][0]
            if apart > (now_ms - notes[place + 1][0]) // _PARTS:
                kept.append(notes[place])
            place += 1
        kept.append(notes[last])
        self.notes = kept
        self._notes_max = max(_NOTES_MAX, 2 * i64(len(kept)))

    def check(
        self, now_ms: i64, default: i64, shortest: i64
    ) -> Iterator[tuple[list[Unacked], int]]:
        """Yield the deliveries that exceed their limits, oldest first; set `next_ms`.

        They are yielded in parts, each with the number of deliveries examined.  `default` is the
        limit if neither the consumer nor the queue has one, `shortest` the shortest limit of all.
        """
        self.next_ms = NO_DEADLINE
        first_tag: i64 = 0
        looked_at: i64 = _LOOKED_AT
        while looked_at == _LOOKED_AT and self.notes:
            notes = self.notes
            if now_ms - notes[0][0] < shortest:
                # Not even the oldest delivery exceeds the shortest limit.
                self._look_again(notes[0][0] + shortest)
                return
            found = self._unacked.from_tag(first_tag, _LOOKED_AT)
            looked_at = len(found)
            late: list[Unacked] = []
            note: i64 = 0
            for unacked in found:
                first_tag = unacked.tag + 1
                while note < len(notes) and notes[note][1] < unacked.tag:
                    note += 1
                given_ms: i64 = notes[note][0] if note < len(notes) else now_ms
                if now_ms - given_ms < shortest:
                    self._look_again(given_ms + shortest)
                    looked_at = 0
                    break
                limit = limit_of(unacked, default)
                if 0 < limit <= now_ms - given_ms:
                    late.append(unacked)
                elif limit > 0:
                    self._look_again(given_ms + limit)
            yield late, len(found)

    def _look_again(self, time_ms: i64) -> None:
        """Schedule the next check for `time_ms` or earlier."""
        if self.next_ms == NO_DEADLINE or time_ms < self.next_ms:
            self.next_ms = time_ms


def timed_out(number: i64, timeout_ms: i64) -> PreconditionFailed:
    """Return the error of a channel with a delivery that exceeded `timeout_ms`."""
    return PreconditionFailed(
        f"delivery acknowledgement on channel {int(number)} timed out. "
        f"Timeout value used: {int(timeout_ms)} ms. This timeout value can be "
        "configured, see consumers doc guide to learn more"
    )


def limit_of(unacked: Unacked, default: i64) -> i64:
    """Return the limit of one delivery, or 0: its consumer's, else its queue's, else `default`.

    A delivery that was requeued because its ack was late, or whose queue is deleted, has no limit.
    """
    if unacked.queue.deleted:
        return 0
    consumer = unacked.consumer
    if consumer is not None and consumer.ack_limit_ms >= 0:
        return consumer.ack_limit_ms
    own = unacked.queue.settings.consumer_timeout_ms
    return default if own < 0 else own


@final
class AckClock(Timed):
    """The timer of one connection: cancels consumers whose acks are late.

    Invariant: while any delivery can exceed its limit, the timer is set to that time or earlier.
    """

    def __init__(self, connection: ConnectionBase, channels: dict[i64, ServerChannel]) -> None:
        super().__init__()
        self._connection: Final = connection
        self._channels: Final = channels
        self._noted_ms: i64 = 0
        #: The last check, and the earliest time of the next one.
        self._last_check: Task | None = None
        self._following_ms: i64 = 0

    def delivered(self) -> None:
        """Note the time of new deliveries now, or later if the last note is too recent."""
        core = self._connection.core
        following = self._noted_ms + self._apart()
        if core.now_ms >= following or core.now_ms == self._noted_ms:
            self._note(core.now_ms)
            self._set(core.now_ms + core.consumer_timeout_ms_min)
        else:
            self._set(following)

    def _apart(self) -> i64:
        limit: i64 = self._connection.core.consumer_timeout_ms_min
        return max(limit // _NOTES_PER_LIMIT, _NOTES_APART_MS)

    def _note(self, now_ms: i64) -> None:
        self._noted_ms = now_ms
        channels = self._channels
        self._connection.scheduler.spent += len(channels) >> 3
        for channel in channels.values():
            channel.consumer_timeout.note(channel.delivery_tag, now_ms)

    def _set(self, time_ms: i64) -> None:
        """Set the timer to `time_ms`, unless it fires before that."""
        if self.deadline_ms == NO_DEADLINE or time_ms < self.deadline_ms:
            self._connection.core.timers.set(self, time_ms)

    def due(self, now_ms: i64) -> None:
        """Note the deliveries so far, and cancel the consumers whose acks are late."""
        shortest: i64 = self._connection.core.consumer_timeout_ms_min
        if shortest == 0:
            return
        if now_ms >= self._noted_ms + self._apart():
            self._note(now_ms)
        if now_ms < self._following_ms:
            self._set(self._following_ms)
        elif self._last_check is None or self._last_check.over:
            scheduler = self._connection.scheduler
            self._last_check = scheduler.start(self._check(now_ms, shortest))

    def _check(self, now_ms: i64, shortest: i64) -> Iterator[int]:
        """Cancel the late consumers of each channel."""
        connection = self._connection
        default = connection.settings.consumer_timeout_ms
        self._following_ms = now_ms
        for channel in list(self._channels.values()):
            limits = channel.consumer_timeout
            for late, looked in limits.check(now_ms, default, shortest):
                if channel.closing:
                    break
                if late and connection.halted & (HALT_SYNC | HALT_WORK | HALT_TURN):
                    # Try again later, because a waiting reply must be sent before the close.
                    self._set(connection.core.now_ms + self._apart())
                    return
                self._following_ms += looked // _LOOKED_AT_PER_MS
                fatal = channel.time_out(late) if late else None
                if fatal is not None:
                    error = timed_out(channel.number, limit_of(fatal, default))
                    connection.fail_channel(channel.number, error)
                yield looked // LOOKS_PER_COST
            if limits.next_ms != NO_DEADLINE and not channel.closing:
                self._set(limits.next_ms)

    def end(self) -> None:
        """Stop the timer when the connection ends."""
        self._connection.core.timers.cancel(self)


@final
class ReturnedSource(Source):
    """Replaces the queue in deliveries that were requeued because their acks were late.

    The client may still settle such a delivery, once: it does not know of the requeue until it
    reads the basic.cancel of its consumer.  Acks, rejects and requeues are ignored.
    """

    def __init__(self, core: Core) -> None:
        super().__init__(core, "", QueueSettings({}))
        self.deleted = True
        # Always True, so that nothing schedules this source: an ack, a reject or a requeue of a
        # delivery has no effect.
        self.scheduled = True

    def subscribe(self, consumer: QueueConsumer, where: str) -> None:
        """Do nothing, because no client can consume from this source."""

    def unsubscribe(self, consumer: QueueConsumer) -> None:
        """Do nothing, because this source has no consumers."""

    def dispatch(self, limit: i64) -> bool:
        """Deliver nothing."""
        return False
