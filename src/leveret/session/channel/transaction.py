"""The publishes and acks that a transactional channel holds until a commit or rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.queue.target import surcharge_of
from leveret.broker.scheduler.accounts import TX_PUBLISH_BYTES
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
    from leveret.broker.sinks.commit import Commit
    from leveret.broker.sinks.staging import StagingQueue
    from leveret.message import Message


_TOO_LONG: Final = (
    "the transaction is too large to be committed at once: requeued and expiring messages, and "
    "messages to queues with limits, TTLs or priorities, count more than once; commit it in parts"
)


@final
class TxPublish:
    """A publish that waits for tx.commit, possibly to a staging queue or to commit a batch."""

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
    """An ack, nack or reject that waits for tx.commit."""

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
        #: The revision of the user's permissions that all publishes were checked against.
        self._rights: i64 = 0
        #: The bytes of all messages.
        self._bytes: i64 = 0
        #: The bytes of messages that are copied into the record.
        self._small_bytes: i64 = 0
        #: The bytes that the connection has booked for the transaction.
        self.booked: i64 = 0
        #: The bytes of the largest message.
        self._largest: i64 = 0
        #: The number of settled deliveries.
        self._settled: i64 = 0
        #: The number of message copies, one for each queue.
        self._copies: i64 = 0
        #: The extra cost that queues add: for expiration, priorities and requeues.
        self._more: i64 = 0
        #: The number of commits of staged batches, and of the staging queues that they name.
        self._commits: i64 = 0
        self._staging_queues: i64 = 0

    def is_checked(self) -> bool:
        """Return whether the user's permissions are unchanged since the publishes were checked."""
        return not self.publishes or self._rights == self._connection.access.revision

    def note_rights(self) -> None:
        """Save the revision of the permissions that all publishes are now checked against."""
        self._rights = self._connection.access.revision

    @property
    def room(self) -> i64:
        """The number of further deliveries that the transaction may settle."""
        return TX_MESSAGES_MAX - self._settled

    @property
    def work(self) -> i64:
        """The approximate cost of the commit (`Scheduler.spent`), without surcharges of queues."""
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
                f"a transaction can hold at most {TX_BYTES_MAX} bytes besides its largest message; "
                "commit it in parts"
            )
        if self._small_bytes > TX_SMALL_BYTES_MAX:
            raise PreconditionFailed(
                f"the messages smaller than {BODY_APART_BYTES} bytes in a transaction can have at "
                f"most {TX_SMALL_BYTES_MAX} bytes in total; commit them in parts"
            )
        targets = publish.found.targets
        self._copies += len(targets)
        self._more += surcharge_of(targets, publish.message)
        if self._copies > TX_COPIES_MAX:
            raise PreconditionFailed(
                f"the messages of a transaction can have at most {TX_COPIES_MAX} copies in queues; "
                "commit them in parts"
            )
        commit = publish.commit
        if commit is not None:
            self._commits += 1
            if self._commits > TX_COMMITS_MAX:
                raise PreconditionFailed(
                    f"a transaction can have at most {TX_COMMITS_MAX} commits of staged batches"
                )
            self._staging_queues += len(commit.command.queues)
            if self._staging_queues > STAGING_QUEUES_PER_COMMIT_MAX:
                raise PreconditionFailed(
                    "the commits of a transaction can name at most "
                    f"{STAGING_QUEUES_PER_COMMIT_MAX} staging queues in total; commit each batch "
                    "in its own transaction"
                )
        self._check_cost()
        if not self.publishes:
            self.note_rights()
        self.publishes.append(publish)

    def _check_cost(self) -> None:
        """Raises: PreconditionFailed (406) if the commit would take too long."""
        if self.work + self._more > TX_COST_MAX:
            raise PreconditionFailed(_TOO_LONG)

    def hold_settle(self, settled: list[Unacked], outcome: i64) -> None:
        """Keep an ack, nack or reject for the commit.

        Raises: PreconditionFailed (406) for too many; the transaction still keeps them, and ends
        with its channel.
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
