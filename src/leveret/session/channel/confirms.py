"""The confirms of a channel: which publishes are settled, and which have been confirmed.

A publish with a journal record is settled when the record's group is synced; one without a record
is settled at once; a held one, such as the commit of a batch, is settled when its `Hold` ends, and
later publishes with it.  Confirms are sent in the order of the publishes.  No confirm covers both a
publish before a returned one and a later one, so that a client that waits for one answer after the
other (php-amqp's `waitForConfirm`) finds a confirm before the return and one after it.

Invariants: `confirmed <= settled <= published`; only settled publishes are confirmed.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.counters import LinkCounts
from leveret.broker.publishers.publish_sessions import ChannelProgress, PublishCounter
from leveret.broker.scheduler.effects import Hold
from leveret.broker.vhost.vhost import DUPLICATE, RECORDED, REJECTED
from leveret.session.connection_base import ConnectionBase
from leveret.store.journal.journal import Journal
from leveret.wire.content.publish_marks import NACKED, RETURNED
from leveret.wire.frames import write_method
from leveret.wire.methods import BasicAck, BasicNack

#: While publishes of a channel wait for a sync, at most this many returned messages separate the
#: confirms before and after them, because the sync causes all these confirms to be written at once.
CONFIRMS_APART_MAX: Final = 1024

#: The group of publishes that are held; no group of the journal reaches it.
_HELD: Final[i64] = 1 << 62


def group_of(journal: Journal, outcome: i64) -> i64:
    """Return the unsynced group of a publish, or of the message that it duplicates; 0 for none.

    `outcome` is the result of `Vhost.publish`.
    """
    if outcome & RECORDED:
        return journal.group
    if outcome & DUPLICATE:
        group = journal.group if journal.has_records() else journal.group - 1
        return group if group > journal.durable_group else 0
    return 0


def late_outcome(journal: Journal, outcome: i64) -> i64:
    """Return the outcome of a long publish, whose records may be synced already."""
    if outcome & RECORDED and not journal.has_records():
        return (outcome & ~RECORDED) | DUPLICATE
    return outcome


@final
class Confirms(PublishCounter):
    """The confirms of one channel."""

    def __init__(self, connection: ConnectionBase, number: i64, to_write: list[Confirms]) -> None:
        super().__init__()
        self._connection = connection
        self._core = connection.core
        self._number: i64 = number
        #: The confirms, of all channels of the connection, to write at the end of the batch.
        self._to_write = to_write
        self._listed = False
        self._ended = False
        self._published: i64 = 0
        self._settled: i64 = 0
        self._confirmed: i64 = 0
        #: The number of publishes confirmed by a basic.nack.
        self._nacked: i64 = 0
        #: Publishes that wait for a sync: (group, its last publish), in order.
        self._unsynced: list[tuple[i64, i64]] = []
        #: What the last of them waits for, if they are held.
        self._holds: list[Hold] = []
        #: The number of the last commit that was held.
        self._commit: i64 = 0
        #: Publishes that a queue refused and that have no basic.nack yet: (first, last), in order.
        self._refused: list[tuple[i64, i64]] = []
        #: Publishes that no `multiple` confirm may extend beyond: the last before each returned
        #: publish that arrived while earlier ones were unconfirmed, in order.
        self._bounds: list[i64] = []
        #: The channel's progress, for a client that asks for it after losing the connection.
        self.progress: ChannelProgress | None = None

    def follow(self, progress: ChannelProgress) -> None:
        """Record the channel's progress for the client."""
        self.progress = progress
        progress.counter = self

    def handled(self) -> i64:
        """Return the number of the last publish; if that is a held commit, of the one before.

        A client that resumes sends such a commit again.  The broker recognizes the repeated commit,
        which waits as well.
        """
        is_held: bool = bool(self._holds) and self._commit == self._published
        return self._published - 1 if is_held else self._published

    def count(self, outcome: i64) -> None:
        """Count a publish; a recorded one waits for its sync.

        `outcome` is the result of `Vhost.publish`.
        """
        number: i64 = self._published + 1
        self._published = number
        if outcome & REJECTED:
            self._refuse(number)
        unsynced = self._unsynced
        group = group_of(self._core.journal, outcome)
        if self._holds:
            unsynced[-1] = (_HELD, number)
            if group > 0 and self.progress is not None:
                self.progress.note_group()
        elif group > 0:
            if not unsynced:
                unsynced.append((group, number))
                self._core.syncs.wait(self, group)
                if self.progress is not None:
                    self.progress.note_group()
            elif unsynced[-1][0] == group:
                unsynced[-1] = (group, number)
            else:
                unsynced.append((group, number))
                if self.progress is not None:
                    self.progress.note_group()
        elif unsynced:
            # Confirms keep their order, so this one waits for the earlier ones.
            unsynced[-1] = (unsynced[-1][0], number)
        else:
            self._settled = number
            if not self._listed:
                self._listed = True
                self._to_write.append(self)

    def count_commit(self, hold: Hold) -> None:
        """Count the commit of a batch that is not released yet."""
        self.count_held(hold)
        self._commit = self._published

    def count_held(self, hold: Hold) -> None:
        """Count a publish that is settled when `hold` ends."""
        number: i64 = self._published + 1
        self._published = number
        if self._holds:
            self._unsynced[-1] = (_HELD, number)
        else:
            self._unsynced.append((_HELD, number))
        if self.progress is not None:
            self.progress.note_group()
        if self not in hold.waiting:
            hold.waiting[self] = None
            self._holds.append(hold)

    def hold_ended(self) -> None:
        """Settle the publishes since the first held one, once no hold is left."""
        self._holds = [hold for hold in self._holds if not hold.ended]
        if self._holds or self._ended:
            return
        if self.progress is not None:
            self.progress.note_group()
        journal = self._core.journal
        group = journal.group if journal.has_records() else journal.group - 1
        self._unsynced[-1] = (group, self._published)
        if len(self._unsynced) == 1:
            self.synced(journal.durable_group)

    def _refuse(self, number: i64) -> None:
        """Record that a queue refused the newest publish, to confirm it by a basic.nack."""
        if self.progress is not None:
            self.progress.not_taken(number, NACKED)
        refused = self._refused
        if refused and refused[-1][1] == number - 1:
            refused[-1] = (refused[-1][0], number)
        else:
            refused.append((number, number))

    def return_next(self) -> None:
        """Confirm the settled publishes before the next one, which is returned to the client."""
        self._write_settled()
        if self._confirmed < self._published and len(self._bounds) < CONFIRMS_APART_MAX:
            self._bounds.append(self._published)
        if self.progress is not None:
            self.progress.not_taken(self._published + 1, RETURNED)

    def unconfirmed(self) -> i64:
        """Return the number of unconfirmed publishes."""
        return 0 if self._ended else self._published - self._confirmed

    def add_counts(self, counts: LinkCounts) -> None:
        """Add the channel's counters, unless it has ended and the connection has added them."""
        if not self._ended:
            counts.confirming += self._published
            counts.confirmed += self._confirmed - self._nacked

    def begin_parts(self) -> None:
        """Begin a publish that reaches its queues in parts; `end_parts` counts it."""
        if self.progress is not None:
            self.progress.busy = True

    def end_parts(self, outcome: i64, returned: bool) -> None:
        """Count a publish in parts at its end; if the channel has ended, only in its `progress`."""
        progress = self.progress
        if not self._ended:
            self.count(late_outcome(self._core.journal, outcome))
            if progress is not None:
                progress.busy = False
        elif progress is not None:
            kind = RETURNED if returned else 0
            progress.count_late(NACKED if outcome & REJECTED else kind)

    def waiting_group(self) -> i64:
        """Return the group that the newest publish waits for; 0 for none, or for a hold."""
        unsynced = self._unsynced
        return unsynced[-1][0] if unsynced and not self._holds else 0

    def synced(self, group: i64) -> None:
        """Settle the publishes of the synced groups and write their confirms."""
        unsynced = self._unsynced
        done: i64 = 0
        size: i64 = len(unsynced)
        while done < size and unsynced[done][0] <= group:
            self._settled = unsynced[done][1]
            done += 1
        del unsynced[:done]
        if unsynced and unsynced[0][0] != _HELD:
            self._core.syncs.wait(self, unsynced[0][0])
        self.write()
        self._connection.wake()

    def write(self) -> None:
        """Write the confirms of all publishes settled since the last call."""
        self._listed = False
        self._write_settled()

    def _write_settled(self) -> None:
        if self._ended:
            return
        bounds = self._bounds
        if bounds:
            done: i64 = 0
            size: i64 = len(bounds)
            while done < size and bounds[done] <= self._settled:
                self._write_up_to(bounds[done])
                done += 1
            del bounds[:done]
        self._write_up_to(self._settled)

    def _write_up_to(self, settled: i64) -> None:
        while self._refused and self._refused[0][0] <= settled:
            first, last = self._refused[0]
            self._confirm(first - 1, False)
            if last > settled:
                self._refused[0] = (settled + 1, last)
                last = settled
            else:
                del self._refused[0]
            self._confirm(last, True)
        self._confirm(settled, False)

    def _confirm(self, last: i64, refused: bool) -> None:
        """Write one basic.ack or basic.nack for the unconfirmed publishes up to `last`.

        Called in order, so that `multiple` never covers a publish of the other kind.
        """
        size: i64 = last - self._confirmed
        if size <= 0:
            return
        self._confirmed = last
        if refused:
            self._nacked += size
        tag = int(last)
        method = BasicNack(tag, size > 1, True) if refused else BasicAck(tag, size > 1)
        write_method(self._connection.output.writer, self._number, method)

    def end(self) -> None:
        """Write no more confirms, because the channel has ended."""
        if self.progress is not None:
            self.progress.end()
        self.add_counts(self._connection.counts)
        self._ended = True
        self._unsynced = []
        for hold in self._holds:
            hold.waiting.pop(self, None)
        self._holds = []
        self._refused = []
        self._bounds = []
