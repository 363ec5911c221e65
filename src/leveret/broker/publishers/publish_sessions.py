"""Publish sessions: the publishes that the broker handled for clients that lost their connection.

When a client reconnects, the broker reports from its session which messages it has handled.  The
client resends only the others, so nothing is stored twice without publisher deduplication.
`leveret.wire.content.publish_marks` defines the fields that both sides send.

A channel counts its publishes for confirms anyway.  The count is recorded when a journal group with
publishes of the channel is sealed, when the connection ends, and by a checkpoint.  Only publishes
that were *not* taken are recorded one by one.

Invariants: a session belongs to a user, and at most one connection uses it; no publish is handled
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

#: The maximum number of publish sessions of a user, connected or not (some 1,500 bytes each), which
#: is more than a user's programs have connections.  A further session replaces the one that lost
#: its connection first, and that client resends everything.
PUBLISH_SESSIONS_PER_USER_MAX: Final = 4_096

#: The maximum number of channels of a publish session, on the current and on lost connections,
#: which is more than clients open.
PUBLISH_SESSION_CHANNELS_MAX: Final = 4_096

#: The maximum number of runs of refused publishes on all channels of a publish session, which is
#: far more than the unconfirmed publishes of a publisher.  A further run replaces the oldest.
PUBLISH_SESSION_GAPS_MAX: Final = 4_096


#: The bytes of a session, a channel, and a run of publishes that were not taken (plain build).
SESSION_BYTES: Final = 1_000
CHANNEL_PROGRESS_BYTES: Final = 450
GAP_BYTES: Final = 200


@mypyc_attr(allow_interpreted_subclasses=True)
class PublishCounter(SyncWaiter):
    """A counter of the publishes of a channel in confirm mode, starting at 1."""

    @abstractmethod
    def handled(self) -> i64:
        """Return the number of the last publish that was handled."""


@final
class ChannelProgress(LateRecord):
    """The publishes handled on one channel; `counter` counts them while the channel is open."""

    def __init__(self, session: PublishSession, key: i64, before: i64) -> None:
        self.key: Final[i64] = key
        #: The keys of the same channel of the application on an earlier and on a later connection.
        self.before: i64 = before
        self.after: i64 = 0
        self.counter: PublishCounter | None = None
        #: True while a publish is routed to its queues in slices.  This continues if the connection
        #: is lost.
        self.busy = False
        #: The publishes up to `floor` are unknown; `gaps` lists later ones that were not taken.
        self.floor: i64 = 0
        self.gaps: list[Gap] = []
        #: True if it has a record in the journal or in a snapshot.
        self.recorded = False
        self._session = session
        self._through: i64 = 0
        #: The progress in the journal.
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

        If there are too many gaps, the oldest are dropped, and the client resends those publishes.
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
        """Record the progress at the end of the current journal group."""
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
        """Apply a record.  It may repeat known progress, and records before it may be lost."""
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
        """Stop counting because the channel is closed."""
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
        """Count the publish that ended after its channel; a `kind` of 0 means it was taken."""
        self.busy = False
        self._through += 1
        if kind:
            self.not_taken(self._through, kind)
        if not self._listed:
            self.append_to(self._session.core.journal)

    def close(self) -> None:
        """Forget the channel, which the client closed, and its predecessor on a lost connection.

        If the broker closed it before any publish arrived, the predecessor is kept, because the
        client may open another channel for it.
        """
        before = self._session.known(self.before)
        if before is not None and (self.counter is not None or self._through > 0):
            before.forget()
        self.forget()

    def forget(self) -> None:
        """Forget the channel, because its client has the result of every publish."""
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
        #: The time when its connection was lost (`Core.now_ms`), or 0 if before startup.
        self.lost_ms: i64 = 0
        self.channels: dict[i64, ChannelProgress] = {}
        self.gap_count: i64 = 0
        self._newest: i64 = 0
        self._sessions = sessions
        self.core: Final = sessions.core
        sessions.book(SESSION_BYTES)

    def open(self, key: i64, before: i64) -> ChannelProgress | None:
        """Return the progress of a new channel, or None for an invalid key or too many channels.

        `before` is the channel's key on a lost connection, or 0.
        """
        if key <= self._newest or len(self.channels) >= PUBLISH_SESSION_CHANNELS_MAX:
            return None
        self._newest = key
        known = self.channels.get(before)
        if known is not None and known.counter is None:
            # The client uses `before` until it has published on `key`.  So predecessors of `before`
            # are finished, and so is an earlier successor that never published.
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
        """Return the progress of a channel of a lost connection, or None."""
        progress = self.channels.get(key)
        return progress if progress is not None and progress.counter is None else None

    def restore(self, progress: PublishProgress) -> None:
        """Apply a record of one of the session's channels."""
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
        """Add to the number and memory of runs of publishes that were not taken."""
        self.gap_count += count
        self._sessions.book(count * GAP_BYTES)

    def lost(self, link: Link) -> None:
        """Handle the end of the connection `link`, after its channels have ended."""
        if self.link is link:
            self.link = None
            self._sessions.lost(self)

    def end(self) -> None:
        """Forget the session because the client has closed its connection."""
        self._sessions.forget(self)


@final
class PublishSessions:
    """All publish sessions of a broker."""

    def __init__(self, core: Core) -> None:
        self.core = core
        #: The memory of the sessions, which counts as memory of connections.
        self.held_bytes: i64 = 0
        #: The sessions by user and identity, and those without a connection, the oldest first.
        self._by_user: dict[bytes, dict[bytes, PublishSession]] = {}
        self._lost: dict[PublishSession, None] = {}

    def book(self, size: i64) -> None:
        """Book `size` bytes, or free them if negative."""
        self.held_bytes += size
        self.core.accounts.connection_bytes += size

    def all(self) -> list[PublishSession]:
        """Return all sessions."""
        return [one for of_user in self._by_user.values() for one in of_user.values()]

    def take(self, user: str, identity: bytes, link: Link) -> PublishSession | None:
        """Return the session for a new connection, or None if the user has too many.

        If another connection uses the session, it is superseded, and its unhandled publishes are
        never handled.
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
        """Keep a session for some time after its connection was lost, if it has channels."""
        if not session.channels:
            self.forget(session)
            return
        session.lost_ms = self.core.now_ms
        self._lost[session] = None

    def forget(self, session: PublishSession) -> None:
        """Forget a session; journal this if any part of the session is recorded."""
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
        """Forget up to `SLICE_MESSAGES` sessions if their clients did not reconnect in time."""
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
        """Apply a record.  All connections were lost when the broker stopped."""
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
