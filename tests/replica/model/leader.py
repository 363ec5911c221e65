"""The part of a node that leads: what it ships, what it commits, and whom it waits for.

The leader knows the in-sync set by its own transactions only.  While one of them is unclear, the
registry may hold either set, so commits wait for the members of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from replica.model.copying import copied
from replica.model.faults import Fault
from replica.model.log import Log, history_of
from replica.model.messages import (
    REGISTRY,
    Ack,
    Answer,
    Append,
    Hello,
    Member,
    State,
    Transaction,
)


class Session(NamedTuple):
    """The present connection to a follower; before its first ack it has no incarnation."""

    number: int
    incarnation: int | None = None
    process: int = 0
    acked: int = 0
    sent: int = 0


class Proposal(NamedTuple):
    """An in-sync set that the registry may hold by now, and the revision it was to replace."""

    compared: int
    in_sync: frozenset[Member]


@dataclass
class Leader:
    """The leader of an epoch, from its election until it is deposed or its process ends."""

    node: int
    epoch: int
    first: int  # the number of the first group of the epoch
    in_sync: frozenset[Member]
    revision: int
    minimum: int
    fault: Fault | None
    committed: int = 0
    opened: int = 0
    sessions: dict[int, Session] = field(default_factory=dict)
    unclear: dict[int, Proposal] = field(default_factory=dict)

    def copy(self) -> Leader:
        """Return a leader that changes apart from this one."""
        copy = copied(self)
        copy.sessions, copy.unclear = dict(self.sessions), dict(self.unclear)
        return copy

    # -- shipping ----------------------------------------------------------------------------------

    def hello(self, log: Log, to: int, *, starts_over: bool) -> Hello:
        """Open a session with a follower, in place of the one before."""
        process = self.sessions[to].process if starts_over else 0
        self.opened += 1
        self.sessions[to] = Session(self.opened)
        return Hello(self.node, to, self.epoch, self.opened, history_of(log), len(log), process)

    def may_start_over(self, to: int) -> bool:
        """Return whether a follower may be told to discard its log: nobody counts on it."""
        session = self.sessions.get(to)
        if session is None or session.incarnation is None:
            return False
        if self.fault is Fault.START_OVER_OF_MEMBER:
            return True
        return Member(to, session.incarnation) not in self.required()

    def has_next(self, log: Log, to: int) -> bool:
        """Return whether there is a group to send to a follower that answered the hello."""
        session = self.sessions.get(to)
        return session is not None and session.incarnation is not None and session.sent < len(log)

    def append(self, log: Log, to: int, checkpoint: int) -> Append:
        """Send a follower the next group; the leader need not have synced it."""
        session = self.sessions[to]
        sent = session.sent + 1
        self.sessions[to] = session._replace(sent=sent)
        return Append(
            self.node,
            to,
            self.epoch,
            session.number,
            sent,
            log[sent - 1],
            self.committed,
            checkpoint,
        )

    def acknowledged(self, ack: Ack) -> None:
        """Note what a follower has synced, if it says so in the present session."""
        session = self.sessions.get(ack.sender)
        if session is None or not self._counts(ack, session):
            return
        acked = ack.number
        if session.incarnation == ack.incarnation or self.fault is Fault.ACKS_OF_EARLIER_DIRECTORY:
            acked = max(acked, session.acked)
        self.sessions[ack.sender] = session._replace(
            incarnation=ack.incarnation,
            process=ack.process,
            acked=acked,
            sent=max(acked, session.sent),
        )

    def _counts(self, ack: Ack, session: Session) -> bool:
        if ack.epoch != self.epoch:
            return ack.epoch < self.epoch and self.fault is Fault.ACK_OF_OLDER_EPOCH
        return ack.session == session.number or self.fault is Fault.ACK_OF_OLDER_SESSION

    # -- committing --------------------------------------------------------------------------------

    def required(self) -> frozenset[Member]:
        """Return the members that commits wait for: those of each set the registry may hold."""
        if not self.unclear or self.fault is Fault.GROW_AFTER_TRANSACTION:
            return self.in_sync
        return self.in_sync.union(*(proposal.in_sync for proposal in self.unclear.values()))

    def reach(self, log: Log, synced: int) -> int:
        """Return the number of the last group that may be committed."""
        if len(self.in_sync) < self.minimum and self.fault is not Fault.COMMIT_BELOW_MINIMUM:
            return self.committed
        reach = len(log) if self.fault is Fault.COMMIT_BEFORE_OWN_SYNC else synced
        for member in self.required():
            if member.node != self.node:
                reach = min(reach, self.acked(member))
        return reach

    def checkpoint_end(self, synced: int) -> int:
        """Return the number of the last group that a checkpoint may hold; 0 if none may end."""
        if self.fault is Fault.CHECKPOINT_OF_WRITTEN:
            return synced
        if self.committed < self.first and self.fault is not Fault.CHECKPOINT_BEFORE_FIRST_COMMIT:
            return 0
        return self.committed

    def acked(self, member: Member) -> int:
        """Return the number of the last group that a member has acknowledged in its session."""
        session = self.sessions.get(member.node)
        if session is None:
            return 0
        if session.incarnation != member.incarnation and self.fault is not Fault.MEMBERSHIP_BY_NODE:
            return 0
        return session.acked

    # -- the in-sync set ---------------------------------------------------------------------------

    def may_shrink(self) -> bool:
        """Return whether the set is large enough to lose a member."""
        return len(self.in_sync) > self.minimum or self.fault is Fault.SHRINK_BELOW_MINIMUM

    def may_grow(self, node: int) -> bool:
        """Return whether a follower may join.

        It must hold all that may be confirmed.  What earlier leaders confirmed, this one does not
        know: any group before the first one of its epoch may be.
        """
        session = self.sessions.get(node)
        if session is None or session.incarnation is None:
            return False
        if Member(node, session.incarnation) in self.in_sync:
            return False
        if self.fault is Fault.GROW_AFTER_FIRST_COMMIT and self.committed < self.first:
            return False
        if self.fault is Fault.GROW_WITHOUT_ACKS:
            return True
        if self.fault is Fault.GROW_BEFORE_FIRST_GROUP:
            return session.acked >= self.committed
        return session.acked >= max(self.committed, self.first)

    def shrink(self, token: int, node: int) -> Transaction:
        """Take a member out of the set: first in the registry."""
        smaller = frozenset(member for member in self.in_sync if member.node != node)
        transaction = self._propose(token, smaller, self.revision)
        if self.fault is Fault.SHRINK_BEFORE_TRANSACTION:
            self.in_sync = smaller
        return transaction

    def grow(self, token: int, node: int, leaving: int = -1) -> Transaction:
        """Let a follower join, in place of its earlier incarnation and of a member that leaves."""
        incarnation = self.sessions[node].incarnation
        assert incarnation is not None, "it acknowledged"
        staying = {member for member in self.in_sync if member.node not in {node, leaving}}
        joined = frozenset(staying | {Member(node, incarnation)})
        return self._propose(token, joined, self.revision)

    def settle(self, token: int, read: State) -> Transaction | None:
        """Write the state that a read of the registry shows: what is unclear can then not land."""
        if self.fault is Fault.SETTLED_BY_READ:
            self.in_sync, self.revision, self.unclear = read.in_sync, read.revision, {}
            return None
        return self._propose(token, read.in_sync, read.revision)

    def _propose(self, token: int, in_sync: frozenset[Member], compared: int) -> Transaction:
        self.unclear[token] = Proposal(compared, in_sync)
        proposed = State(0, self.epoch, self.node, in_sync)
        return Transaction(self.node, REGISTRY, token, compared, proposed)

    def answered(self, answer: Answer) -> None:
        """Learn that a transaction succeeded, after which older ones can no longer do so.

        A refusal tells nothing: the transaction may have been sent twice, and have succeeded once.
        """
        token = answer.token
        if token not in self.unclear:
            if not self.unclear or self.fault is not Fault.ANSWER_OF_ANOTHER:
                return
            token = list(self.unclear)[-1]
        if answer.succeeded:
            proposal = self.unclear[token]
            self.in_sync, self.revision = proposal.in_sync, answer.state.revision
            self.unclear = {
                other: waiting
                for other, waiting in self.unclear.items()
                if waiting.compared >= self.revision
            }
        elif self.fault is Fault.REFUSAL_BELIEVED:
            del self.unclear[token]
