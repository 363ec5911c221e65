"""Publish sessions: the publishes that the broker handled for clients that lost their connection.

A client that reconnects learns from its session which messages the broker has, and resends only the
others: nothing is stored twice, and messages need no publisher deduplication.  The fields that both
sides send are in `leveret.wire.content.publish_marks`.

A channel counts its publishes for its confirms anyway.  That number is read when a journal group
with publishes of the channel is sealed, when the connection ends, and by a checkpoint; only
publishes that were *not* taken are recorded when they happen.

Invariants: a session belongs to a user, and at most one connection has it; no publish is handled
for a channel after its progress was reported; reported progress is durable; no progress is reported
for a forgotten or unknown channel, so its client resends everything.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.scheduler.costs import LOOKED_AT_PER_COST
from leveret.broker.scheduler.effects import SyncWaiter
from leveret.limits import PUBLISH_SESSION_EXPIRY_MS, SLICE_MESSAGES
from leveret.store.journal.journal import Journal, LateRecord
from leveret.store.records.publish_session import FORGOTTEN, PublishProgress
from leveret.wire.content.publish_marks import Gap, PublishMarks

if TYPE_CHECKING:
    from leveret.broker.core import Core
    from leveret.broker.scheduler.link import Link

#: Publish sessions of one user, connected or not (some 1,500 bytes each): more than the connections
#: of a user's programs.  One more replaces the one lost first, whose client then sends everything
#: again.
PUBLISH_SESSIONS_PER_USER_MAX: Final = 4_096

#: Channels of a publish session, of the present connection and of the lost one: more than clients
#: open.
PUBLISH_SESSION_CHANNELS_MAX: Final = 4_096

#: Runs of refused publishes, of all channels of a publish session: far more than the unconfirmed
#: publishes of a publisher.  One more replaces the oldest.
PUBLISH_SESSION_GAPS_MAX: Final = 4_096


#: Bytes in the plain build: a session, a channel, and a run of publishes that were not taken.
SESSION_BYTES: Final = 1_000
CHANNEL_PROGRESS_BYTES: Final = 450
GAP_BYTES: Final = 200


@mypyc_attr(allow_interpreted_subclasses=True)
class PublishCounter(SyncWaiter):
    """A counter of the publishes of a channel in confirm mode, from 1 on."""

    @abstractmethod
    def handled(self) -> i64:
        """Return the number of the last publish that was handled."""


@final
class ChannelProgress(LateRecord):
    """The progress of the publishes of one channel; `counter` counts them while it is open."""

    def __init__(self, session: PublishSession, key: i64, before: i64) -> None:
        self.key: Final[i64] = key
        #: The key of the application's same channel before, and its key since.
        self.before: i64 = before
        self.after: i64 = 0
        self.counter: PublishCounter | None = None
        #: True while a publish is routed to its queues in slices, which continues if the connection
        #: is lost.
        self.busy = False
        #: The publishes up to `floor` are unknown; `gaps` has later ones that were not taken.
        self.floor: i64 = 0
        self.gaps: list[Gap] = []
        #: Whether it has a record in the journal or in a snapshot.
        self.recorded = False
        self._session = session
        self._through: i64 = 0
        #: The progress that the journal has.
        self._journaled: i64 = 0
        self._listed = False
        self._forgotten = False

    def through(self) -> i64:
        """Return the number of the last publish that was handled."""
        counter = self.counter
        return self._through if counter is None else counter.handled()

    def marks(self) -> PublishMarks:
        """Return the progress to report to the client."""
        return PublishMarks(self.through(), self.floor, self.gaps)

    def not_taken(self, number: i64, kind: int) -> None:
        """Record that a publish was refused or returned; if it was both, the last call counts.

        If there are too many gaps, the oldest are dropped: the client resends those publishes.
        """
        gaps = self.gaps
        if gaps and gaps[-1][1] == number:
            first, last, old = gaps[-1]
            if old == kind:
                return
            if first < last:
                gaps[-1] = (first, last - 1, old)
            else:
                gaps.pop()
                self._session.count_gaps(-1)
        self._add_gap(int(number), int(number), kind)

    def _add_gap(self, first: int, last: int, kind: int) -> None:
        """Add a run after all others."""
        gaps = self.gaps
        if gaps and gaps[-1][1] == first - 1 and gaps[-1][2] == kind:
            gaps[-1] = (gaps[-1][0], last, kind)
        elif self._session.gap_count < PUBLISH_SESSION_GAPS_MAX:
            gaps.append((first, last, kind))
            self._session.count_gaps(1)
        elif gaps:
            given_up = len(gaps) // 2 + 1
            self.floor = gaps[given_up - 1][1]
            del gaps[:given_up]
            gaps.append((first, last, kind))
            self._session.count_gaps(1 - given_up)
        else:
            self.floor = last

    def note_group(self) -> None:
        """Have the progress recorded in the current journal group."""
        if not self._listed and not self._forgotten:
            self._listed = True
            self._session.core.journal.at_end(self)

    def append_to(self, journal: Journal) -> None:
        """Record the progress since the last record."""
        self._listed = False
        through = self.through()
        since = self._journaled
        if self._forgotten or through <= since:
            return
        gaps = [gap for gap in self.gaps if gap[1] > since]
        journal.publish_session(self._record(max(since, self.floor), through, gaps))
        self._journaled = through
        self.recorded = True

    def record(self) -> PublishProgress:
        """Return the whole progress as a record, for a snapshot."""
        self.recorded = True
        return self._record(self.floor, self.through(), list(self.gaps))

    def _record(self, since: i64, through: i64, gaps: list[Gap]) -> PublishProgress:
        session = self._session
        return PublishProgress(session.user, session.identity, self.key, since, through, gaps)

    def restore(self, progress: PublishProgress) -> None:
        """Apply a record, which may repeat known progress, or follow lost records."""
        known = self._through
        if progress.through <= known:
            return
        if progress.since > known:
            self.floor = progress.since
        for first, last, kind in progress.gaps:
            if last > known:
                self._add_gap(max(first, int(known) + 1), last, kind)
        self._through = self._journaled = progress.through
        self.recorded = True

    def end(self) -> None:
        """End counting: the channel is closed."""
        counter = self.counter
        if counter is None:
            return
        self._through = counter.handled()
        self.counter = None
        if self._through == 0 and not self.busy:
            self.forget()
        elif not self._listed and self._through > self._journaled and not self._forgotten:
            self.append_to(self._session.core.journal)

    def count_late(self, kind: int) -> None:
        """Count the publish that was completed after the channel ended; kind 0: taken."""
        self.busy = False
        self._through += 1
        if kind:
            self.not_taken(self._through, kind)
        if not self._listed:
            self.append_to(self._session.core.journal)

    def close(self) -> None:
        """Forget the channel and its predecessor on a lost connection: the client closed it.

        If the broker closed it before any publish arrived, the predecessor stays, as the client may
        open another channel for it.
        """
        before = self._session.known(self.before)
        if before is not None and (self.counter is not None or self._through > 0):
            before.forget()
        self.forget()

    def forget(self) -> None:
        """Forget the channel: its client knows the result of every publish."""
        if self._forgotten:
            return
        self._forgotten = True
        session = self._session
        session.forget_channel(self)
        if self.recorded:
            session.core.journal.publish_session(self._record(0, FORGOTTEN, []))


@final
class PublishSession:
    """The channels of one client over all its connections; `link` is the current one."""

    def __init__(self, sessions: PublishSessions, user: bytes, identity: bytes) -> None:
        self.user: Final = user
        self.identity: Final = identity
        self.link: Link | None = None
        #: When its connection was lost (`Core.now_ms`); 0 if before the start.
        self.lost_ms: i64 = 0
        self.channels: dict[i64, ChannelProgress] = {}
        self.gap_count: i64 = 0
        self._newest: i64 = 0
        self._sessions = sessions
        self.core: Final = sessions.core
        sessions.book(SESSION_BYTES)

    def open(self, key: i64, before: i64) -> ChannelProgress | None:
        """Return a progress for a new channel; None for an invalid key or too many channels.

        `before` is the channel's key on a lost connection, or 0.
        """
        if key <= self._newest or len(self.channels) >= PUBLISH_SESSION_CHANNELS_MAX:
            return None
        self._newest = key
        known = self.channels.get(before)
        if known is not None and known.counter is None:
            # The client uses `before` until it has published on `key`: predecessors of `before` are
            # finished, and so is an earlier successor that never published.
            for other in (self.channels.get(known.before), self.channels.get(known.after)):
                if other is not None and other.counter is None:
                    other.forget()
            known.after = key
        return self._add(key, before)

    def _add(self, key: i64, before: i64) -> ChannelProgress:
        progress = self.channels[key] = ChannelProgress(self, key, before)
        self._sessions.book(CHANNEL_PROGRESS_BYTES)
        return progress

    def known(self, key: i64) -> ChannelProgress | None:
        """Return the progress of a channel of a lost connection, if it is known."""
        progress = self.channels.get(key)
        return progress if progress is not None and progress.counter is None else None

    def restore(self, progress: PublishProgress) -> None:
        """Apply a record of one of its channels."""
        known = self.channels.get(progress.channel)
        if progress.through == FORGOTTEN:
            if known is not None:
                known.recorded = False
                known.forget()
            return
        if known is None:
            if len(self.channels) >= PUBLISH_SESSION_CHANNELS_MAX:
                return
            known = self._add(progress.channel, 0)
            self._newest = max(self._newest, progress.channel)
        known.restore(progress)

    def forget_channel(self, progress: ChannelProgress) -> None:
        """Remove a channel."""
        if self.channels.get(progress.key) is progress:
            del self.channels[progress.key]
            self._sessions.book(-CHANNEL_PROGRESS_BYTES)
            self.count_gaps(-len(progress.gaps))

    def count_gaps(self, count: i64) -> None:
        """Book runs of publishes that were not taken."""
        self.gap_count += count
        self._sessions.book(count * GAP_BYTES)

    def lost(self, link: Link) -> None:
        """Handle the end of its connection, whose channels have already ended."""
        if self.link is link:
            self.link = None
            self._sessions.lost(self)

    def end(self) -> None:
        """Forget the session: the client has closed its connection."""
        self._sessions.forget(self)


@final
class PublishSessions:
    """All publish sessions of a broker."""

    def __init__(self, core: Core) -> None:
        self.core = core
        #: Their memory; it counts with the connections.
        self.held_bytes: i64 = 0
        #: By user and identity; and the sessions without a connection, the one lost first in front.
        self._by_user: dict[bytes, dict[bytes, PublishSession]] = {}
        self._lost: dict[PublishSession, None] = {}

    def book(self, size: i64) -> None:
        """Book `size` bytes; a negative size books out."""
        self.held_bytes += size
        self.core.accounts.connection_bytes += size

    def all(self) -> list[PublishSession]:
        """Return all sessions."""
        return [one for of_user in self._by_user.values() for one in of_user.values()]

    def take(self, user: str, identity: bytes, link: Link) -> PublishSession | None:
        """Give a connection its user's session; None if the user has too many.

        Another connection that has the session is lost: its unhandled publishes are never handled.
        """
        name = user.encode("utf-8", "surrogateescape")
        if len(name) > 255:
            return None
        session = self._by_user.get(name, {}).get(identity)
        if session is None:
            session = self._make(name, identity)
            if session is None:
                return None
        elif session.link is not None:
            session.link.superseded()
        self._lost.pop(session, None)
        session.link = link
        return session

    def _make(self, user: bytes, identity: bytes) -> PublishSession | None:
        of_user = self._by_user.get(user, {})
        if len(of_user) >= PUBLISH_SESSIONS_PER_USER_MAX:
            self.core.scheduler.spent += len(of_user) // LOOKED_AT_PER_COST
            lost = [one for one in of_user.values() if one.link is None]
            if not lost:
                return None
            self.forget(min(lost, key=lambda one: one.lost_ms))
        session = PublishSession(self, user, identity)
        self._by_user.setdefault(user, {})[identity] = session
        return session

    def lost(self, session: PublishSession) -> None:
        """Keep a session for a while after its connection was lost, if it has any progress."""
        if not session.channels:
            self.forget(session)
            return
        session.lost_ms = self.core.now_ms
        self._lost[session] = None

    def forget(self, session: PublishSession) -> None:
        """Forget a session, and record that if any part of it is recorded."""
        of_user = self._by_user.get(session.user)
        if of_user is None or of_user.get(session.identity) is not session:
            return
        self._lost.pop(session, None)
        del of_user[session.identity]
        if not of_user:
            del self._by_user[session.user]
        recorded = False
        for progress in list(session.channels.values()):
            recorded = recorded or progress.recorded
            progress.recorded = False
            progress.forget()
        self.book(-SESSION_BYTES)
        if recorded:
            gone = PublishProgress(session.user, session.identity, FORGOTTEN, 0, FORGOTTEN, [])
            self.core.journal.publish_session(gone)

    def tick(self) -> None:
        """Forget sessions whose client did not come back in time, up to `SLICE_MESSAGES`."""
        now_ms = self.core.now_ms
        for _ in range(SLICE_MESSAGES):
            oldest = next(iter(self._lost), None)
            if oldest is None or now_ms - oldest.lost_ms < PUBLISH_SESSION_EXPIRY_MS:
                return
            self.forget(oldest)

    def shed(self) -> bool:
        """Forget the older half of the sessions without a connection; return whether any existed.

        Called when connections take too much memory.
        """
        count = len(self._lost)
        for session in list(self._lost)[: count // 2 + 1]:
            self.forget(session)
        return count > 0

    # -- after a start -----------------------------------------------------------------------------

    def restore(self, progress: PublishProgress) -> None:
        """Apply a record; all connections were lost when the broker stopped."""
        session = self._by_user.get(progress.user, {}).get(progress.session)
        if progress.through == FORGOTTEN and progress.channel == FORGOTTEN:
            if session is not None:
                for channel in session.channels.values():
                    channel.recorded = False
                self.forget(session)
            return
        if session is None:
            if progress.through == FORGOTTEN:
                return
            session = self._make(progress.user, progress.session)
            if session is None:
                return
            self._lost[session] = None
        session.restore(progress)

    def restored(self) -> None:
        """Start the expiry times of all restored sessions now."""
        for session in list(self._lost):
            session.lost_ms = self.core.now_ms
