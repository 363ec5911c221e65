"""The base class of client connections: the interface that the broker and the shell use.

A session is sans-IO: `receive` takes input, `take_output` returns output, and the shell around it
owns the socket and the clock.  A *halted* session does not parse its input until a sync is done,
the output has room, or an alarm is over.  Input is always handled in order.

`AmqpConnection` speaks AMQP 0-9-1 and `HareConnection` HareMQ's protocol; both extend this class,
so that vhosts, alarms, limits and listings deal with one kind of client.

Invariant: only the session itself changes its halt reasons.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.consumers.consumer import DeliveryChannel
from leveret.broker.counters import LinkCounts
from leveret.broker.scheduler.link import Link
from leveret.broker.scheduler.task import Task, after
from leveret.broker.users.access import Access
from leveret.errors import AmqpError, ResourceFault
from leveret.escaping import unquoted
from leveret.large_dict import LargeDict
from leveret.limits import (
    ASSEMBLING_BYTES_MAX,
    INPUT_BYTES_HELD_MAX,
    INPUT_BYTES_PER_COST,
    SPILL_BYTES_MAX,
    UNSYNCED_BYTES_MAX,
)
from leveret.session.current_method import CurrentMethod
from leveret.session.states import (
    HALT_ALARM,
    HALT_OUTPUT,
    HALT_SPILL,
    HALT_SYNC,
    HALT_TURN,
    HALT_WORK,
)

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.broker.queue.queue import Queue
    from leveret.broker.vhost.vhost import Vhost
    from leveret.session.settings import Peer, SessionSettings

#: The maximum unparsed input during an alarm, which may last for hours and affect many connections;
#: beyond it the socket is not read.
INPUT_BYTES_BLOCKED_MAX: Final = 16_384


class ClientSession(Link):
    """The connection of one client, of either protocol."""

    def __init__(self, broker: Broker, settings: SessionSettings, peer: Peer, now_ms: i64) -> None:
        super().__init__(broker.core.scheduler, broker.core.accounts, peer.name)
        self.core = broker.core
        self.broker = broker
        self.settings = settings
        self.peer = peer
        #: The time of the last input or `tick` (monotonic ms).
        self.now_ms: i64 = now_ms
        #: Log lines with their levels, until the shell takes them.
        self.log: list[tuple[str, str]] = []
        #: The reasons for a halt; see `states`.
        self.halted: i64 = 0
        #: True once the shell must close the socket after flushing the output.
        self.finished = False
        self.current = CurrentMethod(broker.core)
        #: The running long operation, if any.
        self.work: ClientTask | None = None
        #: The user's permissions; they allow nothing before a vhost is opened.
        self.access = Access(broker.users, "", "")
        self.vhost: Vhost | None = None
        #: The connection's exclusive queues by id.
        self.exclusive_queues: LargeDict[i64, Queue] = LargeDict()
        #: The bytes of incomplete messages and of uncommitted transactions.
        self.assembling_bytes: i64 = 0
        self.assembling_bytes_max: i64 = ASSEMBLING_BYTES_MAX
        # Wall time, and counters.
        self.connected_at_ms: i64 = broker.core.now_ms
        self.published: i64 = 0
        #: All counters except `published`; for confirms, only those of ended channels.
        self.counts: Final = LinkCounts()
        #: The number of the last walk over all connections that counted this one (see `counters`);
        #: 0 for none.
        self.walk: i64 = 0
        #: The number of long deliveries in progress; no other delivery starts before they end.
        self.preparing: i64 = 0
        #: True once the release of the connection's resources has begun, and once it is complete.
        self.released = False
        self._is_empty = False

    # -- calls of the shell ------------------------------------------------------------------------

    @abstractmethod
    def receive(self, data: bytes, now_ms: i64) -> None:
        """Handle bytes from the peer; `now_ms` is monotonic."""

    @abstractmethod
    def take_output(self) -> list[bytes | memoryview]:
        """Return the bytes to send, in order."""

    def flushed(self, transport_full: bool) -> None:
        """Resume after the transport took the output, or pause deliveries if its buffer is full."""
        if transport_full:
            self.writable = False
            return
        if not self.writable and not self.released and self.preparing == 0:
            self.writable = True
            self.resume_deliveries()
        if self.halted & HALT_OUTPUT:
            self.halted &= ~HALT_OUTPUT
            self.run()

    @abstractmethod
    def open_channels(self) -> list[DeliveryChannel]:
        """Return the open channels."""

    @abstractmethod
    def resume_deliveries(self) -> None:
        """Schedule the queues of all consumers, because the output has room for deliveries."""

    @abstractmethod
    def input_bytes_held(self) -> int:
        """Return the number of unparsed bytes of input."""

    @abstractmethod
    def is_authenticated(self) -> bool:
        """Return whether the client has logged in, or (HareMQ) made a request."""

    def is_authenticating(self) -> bool:
        """Return whether the login is being verified, or the client has yet to open a vhost."""
        return False

    def set_reading(self, reading: bool, now_ms: i64) -> None:
        """Measure the peer's silence from `now_ms` on, but only while the shell is reading."""

    @abstractmethod
    def tick(self, now_ms: i64) -> None:
        """Do periodic work, about once a second; `now_ms` is monotonic."""

    def resumed(self) -> None:
        """Recover after the process was suspended."""

    @abstractmethod
    def lost(self) -> None:
        """End the connection because its socket is lost."""

    # -- its end -----------------------------------------------------------------------------------

    def release(self, answers: bool) -> None:
        """Requeue unacked messages, cancel the consumers and delete the exclusive queues.

        This happens before the close is answered (behaviour 13: exclusive queues are deleted
        before close-ok), in several slices if necessary.  If `answers`, `answer_close` is called
        at the end.
        """
        if self.released:
            return
        self.released = True
        self.broker.leave(self)
        self.writable = False
        self.core.scheduler.start(self._release_all(self.end_channels(), answers))

    def _release_all(self, endings: list[Iterator[int]], answers: bool) -> Iterator[int]:
        """Release the channels one after the other, and then the exclusive queues.

        Begin when the client's running operation, if any, has ended.
        """
        before = self.work
        if before is not None:
            # The operation need not wait for a sync, because the client is not awaiting a reply.
            self.scheduler.wake(before)
        yield from after(before)
        for ending in endings:
            yield from ending
            yield 1
        yield from self.drop_exclusive()
        if answers:
            self.answer_close()
        self._is_empty = True
        if self not in self.broker.links:
            self.untie()

    @abstractmethod
    def end_channels(self) -> list[Iterator[int]]:
        """Forget the channels; return the operations that release them."""

    def answer_close(self) -> None:
        """Answer the client's request to close the connection, if the protocol has one."""

    def finish(self) -> None:
        """End the connection; the shell closes the socket once the output is flushed."""
        self.release(False)
        self.finished = True
        self.wake()

    def has_no_socket(self) -> None:
        """Leave the list of connections, and add the counters to the totals.

        Drop the connection's references if everything is released.
        """
        if self.broker.links.pop(self, self) is None:
            counts = LinkCounts()
            self.add_counts(counts)
            self.core.counts.link_gone(counts, self.walk)
        self.account.end()
        self.unacked.end()
        if self._is_empty:
            self.untie()

    @abstractmethod
    def untie(self) -> None:
        """Break the reference cycles between the connection and its parts, to free it at once.

        Otherwise each connection would leave 7 kB behind, because the garbage collector hardly ever
        examines old objects.  An ended connection may still be called, so it shares the parts of
        another ended connection, which the broker keeps for this purpose.
        """

    # -- its input ---------------------------------------------------------------------------------

    def yield_turn(self) -> None:
        """Stop parsing until the scheduler resumes this connection."""
        if self.halted & HALT_TURN == 0:
            self.halted |= HALT_TURN
            self.scheduler.turns.add(self)

    def take_turn(self) -> None:
        """Resume parsing, because the scheduler has reached this connection."""
        self.resume(HALT_TURN)

    def waits_for_turn(self) -> bool:
        """Return whether the connection's input waits for the scheduler."""
        return self.halted & HALT_TURN != 0

    @abstractmethod
    def run(self) -> None:
        """Parse the input until it is used up or the connection is halted."""

    def halt(self, reason: i64) -> None:
        """Stop parsing until `resume` is called with the same reason."""
        self.halted |= reason

    def resume(self, reason: i64) -> None:
        """Remove a reason to halt, resume parsing, and have the shell call `reads_on` again."""
        self.halted &= ~reason
        self.wake()
        self.run()

    def spilled(self) -> None:
        """Resume parsing, because the disk has caught up with the queues."""
        if self.halted & HALT_SPILL:
            self.resume(HALT_SPILL)

    def is_at_work(self) -> bool:
        """Return whether a long operation of this client is running."""
        return self.work is not None

    def start(self, operation: Iterator[int]) -> None:
        """Run a long operation for this client (`Task`).

        If the first slice does not complete it, no input is parsed until it ends.  The operation
        itself replies to the client, if the client is still waiting (`awaits_reply`).  An AmqpError
        in a later slice reaches the client like one in the first.
        """
        task = ClientTask(self, operation)
        self.core.scheduler.begin(task)
        if not task.over:
            self.work = task
            self.halt(HALT_WORK)

    def survives(self, bug: Exception) -> bool:
        """If the current method changed nothing, log an unexpected exception and return True."""
        if isinstance(bug, MemoryError) or self.current.changed(self.published):
            return False
        self.log.append(("error", f"internal error: {unquoted(bug)}"))
        return True

    @abstractmethod
    def operation_failed(self, error: AmqpError) -> None:
        """Report the failure of the long operation to the client."""

    def awaits_reply(self) -> bool:
        """Return whether the connection is open, so that the client may be waiting for a reply."""
        return not self.finished

    # -- calls to the broker -----------------------------------------------------------------------

    def enter_vhost(self, name: str) -> None:
        """Open a vhost for the user.  Raises: NotAllowed (530) as `Broker.enter`."""
        self.vhost = self.broker.enter(self, name)
        self.access = Access(self.broker.users, self.user, name)
        self.as_owner = self.access.owner
        self.unacked.user = self.user

    def access_changed(self) -> None:
        """Read the user's permissions again (behaviour 74: permissions are cached).

        The publishes of a transaction are checked again when it is committed.
        """
        self.access.forget()

    def publisher_blocked(self) -> None:
        """Halt until the alarm is over, after a publish.  Raises: ResourceFault (506)."""
        self.halt(HALT_ALARM)

    def alarm(self, blocked: bool, reason: str) -> None:
        """Resume parsing when the alarm is over (behaviour 16: alarms block publishers)."""
        if not blocked and self.halted & HALT_ALARM:
            self.resume(HALT_ALARM)

    def check_publisher(self, recorded: bool) -> None:
        """Halt after a publish if an alarm is on, or too many bytes wait to be synced or written.

        `recorded` is True if the publish added a record to the journal.
        """
        if recorded:
            self.check_unsynced(UNSYNCED_BYTES_MAX)
        if self.core.spill.unwritten_bytes > SPILL_BYTES_MAX:
            self.halted |= HALT_SPILL
            self.core.wait_spilled(self)
        if self.broker.blocked:
            self.publisher_blocked()

    def check_unsynced(self, most: i64) -> None:
        """Halt until the next sync if more than `most` bytes of the journal wait for it."""
        if self.core.journal.unsynced_bytes > most:
            self.halted |= HALT_SYNC
            self.core.syncs.wait(self, self.core.journal.durable_group + 1)

    def count_input(self, data: bytes, now_ms: i64) -> None:
        """Count bytes from the peer; `now_ms` is monotonic."""
        self.now_ms = now_ms
        counts = self.counts
        counts.received_bytes += len(data)
        counts.received_packets += 1
        self.core.scheduler.spent += len(data) // INPUT_BYTES_PER_COST

    def count_output(self, parts: list[bytes | memoryview]) -> None:
        """Count the bytes that the shell takes for sending."""
        counts = self.counts
        counts.sent_packets += 1
        for part in parts:
            counts.sent_bytes += len(part)

    def count_published(self, size: i64) -> None:
        """Count a publish with a body of `size` bytes."""
        self.published += 1
        self.core.sizes.note(size)

    def add_counts(self, counts: LinkCounts) -> None:
        """Add the connection's counters to `counts`."""
        counts.add(self.counts)
        counts.published += self.published

    def assemble(self, size: i64) -> None:
        """Count bytes of an incomplete message or an uncommitted transaction.

        Raises: ResourceFault (506) if the connection has too many such bytes, or the broker has no
        memory left even to finish messages begun before an alarm.
        """
        self.assembling_bytes += size
        self.core.memory.assemble(size)
        most = self.assembling_bytes_max
        if self.assembling_bytes > most:
            raise ResourceFault(
                f"the connection's incomplete messages and transactions exceed {most} bytes"
            )
        if self.broker.blocked:
            self.check_memory()

    def end_assembly(self, size: i64) -> None:
        """Stop counting the bytes of a message or a transaction that has ended."""
        self.assembling_bytes -= size
        self.core.memory.end_assembly(size)

    def check_memory(self) -> None:
        """Refuse more content if memory is used up despite the alarm.

        Raises: ResourceFault (506).
        """
        if self.broker.is_overfull():
            raise ResourceFault("no memory left to finish messages begun before the alarm")

    def reads_on(self) -> bool:
        """Return whether the shell should read the socket, which depends on the unparsed input.

        The limit is lower for a publisher blocked by an alarm, because there may be many such
        publishers for a long time.
        """
        halted = self.halted
        if halted == 0:
            return True
        most: i64 = INPUT_BYTES_BLOCKED_MAX if halted & HALT_ALARM else INPUT_BYTES_HELD_MAX
        return self.input_bytes_held() <= most

    def settle_unacked(self) -> None:
        """Resume deliveries that waited for room (called once a second)."""
        if self.unacked.settle():
            self.resume_deliveries()
        warning = self.unacked.warning()
        if warning:
            self.log.append(("warning", warning))

    def keep_exclusive(self, queue: Queue) -> None:
        """Remember a new exclusive queue, to delete it with the connection."""
        self.exclusive_queues[queue.queue_id] = queue

    def lose_exclusive(self, queue_id: i64) -> None:
        """Forget a deleted exclusive queue, because a client may create many in succession."""
        self.exclusive_queues.pop(queue_id)

    def drop_exclusive(self) -> Iterator[int]:
        """Delete the exclusive queues (behaviour 13: before close-ok)."""
        vhost = self.vhost
        while len(self.exclusive_queues) > 0:
            queue = self.exclusive_queues.popitem()[1]
            if vhost is not None:
                vhost.queues.drop(queue)
            yield 1


@final
class ClientTask(Task):
    """A long operation for a client; its connection parses nothing until it ends.

    The operation continues if the connection is lost.
    """

    def __init__(self, session: ClientSession, operation: Iterator[int]) -> None:
        super().__init__(session.scheduler, operation)
        self._session = session
        self._error: AmqpError | None = None

    def keeps(self, error: AmqpError) -> bool:
        """Keep an error of a later slice, to report it at the end."""
        if self.began:
            self._error = error.with_traceback(None)
        return self.began

    def ended(self) -> None:
        """Report the error, if any, and resume parsing."""
        session = self._session
        super().ended()
        session.work = None
        error = self._error
        if error is not None:
            self._error = None
            # The method that started the operation is still the current method.
            session.operation_failed(error)
        # Handling the failure may be a long operation too, which resumes parsing when it ends.
        if session.halted & HALT_WORK and not session.is_at_work():
            session.resume(HALT_WORK)
