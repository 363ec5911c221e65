"""A node: the directory that it keeps, and the process that follows, stands for election or leads.

A node's log is in its directory.  A power failure leaves the groups that are synced, and any number
of those behind them; a process that is killed leaves all of them.  A checkpoint holds what its
groups did, so that they cannot be cut off any more.  The directory also keeps the incarnation, and
the highest epoch that the node won or obeyed, synced before it acts on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from replica.model.copying import copied
from replica.model.faults import Fault
from replica.model.leader import Leader
from replica.model.log import Group, Log, last_common
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


class Following(NamedTuple):
    """The session that a follower obeys."""

    epoch: int
    session: int
    leader: int


class Candidacy(NamedTuple):
    """An election that a node awaits the outcome of."""

    token: int
    epoch: int


@dataclass
class Node:
    """A node of the cluster; its methods return the messages that it sends."""

    number: int
    minimum: int
    fault: Fault | None
    incarnation: int
    log: Log = ()
    synced: int = 0
    checkpoint: int = 0  # the last group that it holds
    obeyed: int = 0  # the highest epoch that it won or obeyed
    committed: int = 0  # the last group that it knows to be committed
    transactions: int = 0
    process: int = 1
    taken_as_synced: int = 0  # by RESTART_WITHOUT_SYNC
    following: Following | None = None
    candidacy: Candidacy | None = None
    leader: Leader | None = None

    def copy(self) -> Node:
        """Return a node that changes apart from this one."""
        copy = copied(self)
        if self.leader is not None:
            copy.leader = self.leader.copy()
        return copy

    @property
    def member(self) -> Member:
        """Return the name of this directory in an in-sync set."""
        return Member(self.number, self.incarnation)

    def visible(self) -> int:
        """Return the number of the last group that readers at this node see."""
        if self.leader is None:
            return len(self.log) if self.fault is Fault.FOLLOWER_SHOWS_LOG else self.committed
        if self.fault is Fault.LEADER_SHOWS_SYNCED:
            return self.synced
        if self.fault is Fault.LEADER_SHOWS_RECOVERED:
            return max(self.leader.committed, self.leader.first - 1)
        return self.leader.committed if self.leader.committed >= self.leader.first else 0

    def token(self) -> int:
        """Return a name for a transaction that no other one of this node has."""
        self.transactions += 1
        return self.transactions

    # -- the directory -----------------------------------------------------------------------------

    def sync(self) -> list[Ack]:
        """Sync the log; a follower then acknowledges it."""
        self.synced = len(self.log)
        return [self._ack()] if self.following is not None else []

    def kill(self) -> None:
        """End the process and start another, which syncs what it finds before it says a word."""
        synced = self.synced
        self._start(self.log)
        if self.fault is Fault.RESTART_WITHOUT_SYNC:
            self.synced, self.taken_as_synced = min(synced, len(self.log)), len(self.log)

    def lose_power(self, kept: int) -> None:
        """Lose what is not synced, but for the groups up to `kept`, and start again."""
        self._start(self.log[:kept])

    def lose_disk(self, kept: int, incarnation: int) -> None:
        """Start on another directory: empty, restored from a backup, or cut where it is damaged.

        The file of the incarnation and the epoch is in no backup.
        """
        if self.fault is not Fault.INCARNATION_KEPT:
            self.incarnation = incarnation
        if kept < self.checkpoint:
            self.checkpoint = 0
        self.obeyed = 0
        self._start(self.log[:kept])
        self.committed = 0

    def _start(self, log: Log) -> None:
        if self.leader is not None:
            self._step_down(self.leader)
        if self.fault is Fault.CUT_TO_KNOWN_COMMITTED:
            log = log[: self.committed]
        if self.fault is Fault.EPOCH_FORGOTTEN:
            self.obeyed = 0
        if log and self.fault is not Fault.EPOCH_OF_BACKUP_IGNORED:
            self.obeyed = max(self.obeyed, log[-1].epoch)
        self.log, self.synced = log, len(log)
        self.committed = min(self.committed, len(log))
        self.taken_as_synced = 0
        self.process += 1
        self.following = self.candidacy = None

    # -- following ---------------------------------------------------------------------------------

    def greeted(self, hello: Hello) -> list[Ack]:
        """Obey a leader that opens a session, unless a higher epoch or session was obeyed."""
        if not self._obeys(hello):
            return []
        if self.leader is not None:
            self._step_down(self.leader)
        self.obeyed = hello.epoch
        self.following = Following(hello.epoch, hello.session, hello.sender)
        common = self._last_common(hello)
        if hello.starts_over:
            self.checkpoint = 0
        if common < len(self.log):
            self.log = self.log[:common]
            self.synced = common  # the cut is synced before the first word
            self.committed = min(self.committed, common)
            self.taken_as_synced = 0
        return [self._ack()]

    def _obeys(self, hello: Hello) -> bool:
        if self.leader is not None and hello.epoch <= self.leader.epoch:
            return False
        if hello.epoch < self.obeyed:
            return self.fault is Fault.LOWER_EPOCH_OBEYED
        if hello.starts_over not in {0, self.process}:
            return self.fault is Fault.START_OVER_OF_EARLIER_PROCESS
        current = self.following
        if current is None or hello.epoch != current.epoch or hello.session > current.session:
            return True
        return self.fault is Fault.HELLO_OF_OLDER_SESSION

    def _last_common(self, hello: Hello) -> int:
        if hello.starts_over:
            return 0
        if self.fault is Fault.NO_CUT:
            return len(self.log)
        if self.fault is Fault.CUT_BY_NUMBER:
            return min(len(self.log), hello.end)
        common = last_common(self.log, hello.history)
        return min(common, hello.end) if self.fault is Fault.CUT_AT_OPEN_END else common

    def appended(self, append: Append) -> list[Ack]:
        """Write the next group of the session that is obeyed."""
        if self.following != Following(append.epoch, append.session, append.sender):
            return []
        if append.number != len(self.log) + 1:
            return []
        self.log += (append.group,)
        self.committed = max(self.committed, min(append.committed, len(self.log)))
        if append.checkpoint <= self.synced:
            self.checkpoint = max(self.checkpoint, append.checkpoint)
        return [self._ack()] if self.fault is Fault.ACK_BEFORE_SYNC else []

    def _ack(self) -> Ack:
        assert self.following is not None, "acks go to a leader"
        epoch, session, leader = self.following
        number = max(self.synced, self.taken_as_synced)
        if self.fault is Fault.ACK_BEFORE_SYNC:
            number = len(self.log)
        return Ack(self.number, leader, epoch, session, self.incarnation, self.process, number)

    # -- standing for election ---------------------------------------------------------------------

    def may_stand(self, state: State) -> bool:
        """Return whether this node may ask to lead, by a state that it read from the registry."""
        if self.leader is not None or self.synced < len(self.log):
            return False
        if self.fault is Fault.LEADER_OUTSIDE_SET:
            return True
        if self.fault is Fault.MEMBERSHIP_BY_NODE:
            return any(member.node == self.number for member in state.in_sync)
        return self.member in state.in_sync

    def stand(self, state: State) -> Transaction:
        """Ask the registry to lead the next epoch."""
        token, epoch = self.token(), state.epoch + 1
        self.candidacy = Candidacy(token, epoch)
        proposed = State(0, epoch, self.number, state.in_sync)
        return Transaction(self.number, REGISTRY, token, state.revision, proposed)

    def answered(self, answer: Answer, content: Callable[[], int]) -> None:
        """Learn what became of a transaction; `content` is for the first group of an epoch."""
        candidacy, leader = self.candidacy, self.leader
        if candidacy is not None and answer.token == candidacy.token:
            self.candidacy = None
            late = self.obeyed >= candidacy.epoch and self.fault is not Fault.LATE_ELECTION_COUNTS
            if answer.succeeded and not late:
                self.lead(answer.state, content)
        elif leader is not None:
            if answer.state.epoch > leader.epoch:
                self._step_down(leader)
            else:
                leader.answered(answer)

    # -- leading -----------------------------------------------------------------------------------

    def lead(self, state: State, content: Callable[[], int]) -> None:
        """Begin to lead the epoch of a state, with a first group that records it."""
        self.obeyed, self.following = state.epoch, None
        if self.fault is not Fault.OLD_EPOCH_WRITTEN or not self.log:
            self.log += (Group(state.epoch, content()),)
        self._begin(state)

    def resume(self, state: State) -> None:
        """Go on leading an epoch after a restart, which no node should."""
        self.following = None
        self._begin(state)

    def _begin(self, state: State) -> None:
        self.leader = Leader(
            self.number,
            state.epoch,
            len(self.log),
            state.in_sync,
            state.revision,
            self.minimum,
            self.fault,
        )

    def write(self, content: int) -> None:
        """Append a group of clients' records to the log of the leader."""
        assert self.leader is not None, "only a leader writes"
        epoch = self.leader.epoch
        if self.fault is Fault.OLD_EPOCH_WRITTEN and self.log:
            epoch = self.log[-1].epoch
        self.log += (Group(epoch, content),)

    def settle(self, state: State) -> list[Transaction]:
        """Settle unclear transactions by another one, or learn that another node leads."""
        assert self.leader is not None, "only a leader has unclear transactions"
        if state.epoch != self.leader.epoch:
            self._step_down(self.leader)
            return []
        transaction = self.leader.settle(self.token(), state)
        return [] if transaction is None else [transaction]

    def _step_down(self, leader: Leader) -> None:
        self.committed = max(self.committed, leader.committed)
        self.leader = None
