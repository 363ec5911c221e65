"""What a transactional channel holds until its transaction is committed or rolled back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.core.accounts import TX_PUBLISH_BYTES
from leveret.broker.queue.target import surcharge_of
from leveret.broker.scheduler.costs import (
    STAGED_BATCH,
    TX_LARGE_BYTES_PER_COST,
    TX_SMALL_BYTES_PER_COST,
)
from leveret.errors import PreconditionFailed
from leveret.limits import (
    BODY_APART_BYTES,
    STAGING_QUEUES_PER_COMMIT_MAX,
    TX_BYTES_MAX,
    TX_COMMITS_MAX,
    TX_COPIES_MAX,
    TX_COST_MAX,
    TX_MESSAGES_MAX,
    TX_SMALL_BYTES_MAX,
)
from leveret.session.channel.unacked import REQUEUE, RETRY, Unacked
from leveret.session.connection_base import ConnectionBase

if TYPE_CHECKING:
    from leveret.broker.queue.target import Destinations
    from leveret.broker.staging.commit import Commit
    from leveret.broker.staging.staging import StagingQueue
    from leveret.message import Message


_TOO_LONG: Final = (
    "the transaction is too much work to be committed at once: messages that expire or come back, "
    "and those for queues with limits, TTLs or priorities, count more than once; commit it in parts"
)


@final
class TxPublish:
    """A publish that waits for its transaction's commit; one to a staging queue, or a commit."""

    def __init__(
        self,
        message: Message,
        found: Destinations,
        mandatory: bool,
        staging: StagingQueue | None = None,
        commit: Commit | None = None,
        immediate: bool = False,
    ) -> None:
        self.message = message
        self.found = found
        self.mandatory = mandatory
        self.staging = staging
        self.commit = commit
        self.immediate = immediate


@final
class TxSettle:
    """An ack, nack or reject that waits for its transaction's commit."""

    def __init__(self, unacked: list[Unacked], outcome: i64) -> None:
        self.unacked = unacked
        #: ACK, REQUEUE, REJECT or RETRY.
        self.outcome: i64 = outcome


@final
class Transaction:
    """One transaction of a channel, until it is committed or rolled back."""

    def __init__(self, connection: ConnectionBase) -> None:
        self._connection = connection
        self.publishes: list[TxPublish] = []
        self.settles: list[TxSettle] = []
        #: The user's rights by which the first publish of it was allowed.
        self._rights: i64 = 0
        self._bytes: i64 = 0
        #: Of these, the bytes of messages that are copied into the record.
        self._small_bytes: i64 = 0
        #: What the connection has booked for it.
        self.booked: i64 = 0
        #: Of the largest message among them.
        self._largest: i64 = 0
        #: Deliveries that it settles.
        self._settled: i64 = 0
        #: Copies of its messages, one for each queue.
        self._copies: i64 = 0
        #: What its queues count themselves: for deadlines, levels, and what comes back.
        self._more: i64 = 0
        #: Commits of staged batches in it, and the staging queues that these name.
        self._commits: i64 = 0
        self._staging_queues: i64 = 0

    def is_checked(self) -> bool:
        """Return whether the user's rights are those by which all of it was allowed."""
        return not self.publishes or self._rights == self._connection.access.revision

    def note_rights(self) -> None:
        """Note that all of it is being checked by the user's rights as they are now."""
        self._rights = self._connection.access.revision

    @property
    def room(self) -> i64:
        """How many more deliveries it may settle."""
        return TX_MESSAGES_MAX - self._settled

    @property
    def work(self) -> i64:
        """About how much work its commit is (`Scheduler.spent`), beside what its queues count."""
        size: i64 = self._small_bytes // TX_SMALL_BYTES_PER_COST
        size += (self._bytes - self._small_bytes) // TX_LARGE_BYTES_PER_COST
        return (
            len(self.publishes) // 4
            + self._copies
            + self._settled
            + self._commits * STAGED_BATCH
            + self._staging_queues
            + size
        )

    def hold(self, publish: TxPublish) -> None:
        """Keep a publish for the commit.

        Raises: PreconditionFailed (406) for too many; ResourceFault (506) as
        `ClientSession.assemble`.
        """
        size: i64 = publish.message.size
        self._bytes += size
        if size < BODY_APART_BYTES:
            self._small_bytes += size
        self._largest = max(self._largest, size)
        self.booked += size + TX_PUBLISH_BYTES
        self._connection.assemble(size + TX_PUBLISH_BYTES)
        if len(self.publishes) >= TX_MESSAGES_MAX:
            raise PreconditionFailed(
                f"transaction has reached the maximum of {TX_MESSAGES_MAX} uncommitted publishes; "
                "commit it in parts"
            )
        if self._bytes - self._largest > TX_BYTES_MAX:
            raise PreconditionFailed(
                f"a transaction holds at most {TX_BYTES_MAX} bytes beside its largest message; "
                "commit it in parts"
            )
        if self._small_bytes > TX_SMALL_BYTES_MAX:
            raise PreconditionFailed(
                f"the messages of a transaction that are smaller than {BODY_APART_BYTES} bytes "
                f"have at most {TX_SMALL_BYTES_MAX} bytes together; commit them in parts"
            )
        targets = publish.found.targets
        self._copies += len(targets)
        self._more += surcharge_of(targets, publish.message)
        if self._copies > TX_COPIES_MAX:
            raise PreconditionFailed(
                f"the messages of a transaction have at most {TX_COPIES_MAX} copies in all queues"
            )
        commit = publish.commit
        if commit is not None:
            self._commits += 1
            if self._commits > TX_COMMITS_MAX:
                raise PreconditionFailed(
                    f"a transaction has at most {TX_COMMITS_MAX} commits of staged batches"
                )
            self._staging_queues += len(commit.command.queues)
            if self._staging_queues > STAGING_QUEUES_PER_COMMIT_MAX:
                raise PreconditionFailed(
                    f"the commits of a transaction name at most {STAGING_QUEUES_PER_COMMIT_MAX} "
                    "staging queues together; commit the batches in transactions of their own"
                )
        self._check_cost()
        if not self.publishes:
            self.note_rights()
        self.publishes.append(publish)

    def _check_cost(self) -> None:
        """Raises: PreconditionFailed (406) where its commit takes longer than is done at once."""
        if self.work + self._more > TX_COST_MAX:
            raise PreconditionFailed(_TOO_LONG)

    def hold_settle(self, settled: list[Unacked], outcome: i64) -> None:
        """Keep an ack, nack or reject for the commit.

        Raises: PreconditionFailed (406) for too many; they are the transaction's all the same, and
        it ends with its channel.
        """
        full = len(settled) > self.room
        self._settled += len(settled)
        if outcome in (REQUEUE, RETRY):
            self._more += len(settled)
        self.settles.append(TxSettle(settled, outcome))
        if full:
            raise PreconditionFailed(
                f"transaction has reached the maximum of {TX_MESSAGES_MAX} uncommitted acks; "
                "commit it in parts"
            )
        self._check_cost()
