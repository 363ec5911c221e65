"""What a client's connection is to the broker and to its shell, whatever protocol it speaks.

A session is sans-IO: `receive` takes bytes, `take_output` gives bytes; the shell around it owns the
socket and the clock.  It can be *halted*: it parses no more input until what it waits for has come
(a sync, room for output, the end of an alarm).  Everything goes on in order.

`Connection` speaks AMQP 0-9-1 and `HareConnection` HareMQ's protocol; both extend this class, so
that vhosts, alarms, limits and listings know one kind of client.

Invariant: nothing outside a session changes why it is halted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.core.counts import LinkCounts
from leveret.broker.node.access import Access
from leveret.broker.scheduler.link import Link
from leveret.broker.scheduler.task import Task, after
from leveret.errors import AmqpError, ResourceFault
from leveret.escaping import unquoted
from leveret.large_dict import LargeDict
from leveret.limits import (
    ASSEMBLING_BYTES_MAX,
    INPUT_BYTES_BLOCKED_MAX,
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
    from leveret.broker.node.broker import Broker
    from leveret.broker.queue.queue import Queue
    from leveret.broker.vhost.vhost import Vhost
    from leveret.session.settings import Peer, SessionSettings


class ClientSession(Link):
    """One client's connection."""

    def __init__(self, broker: Broker, settings: SessionSettings, peer: Peer, now_ms: i64) -> None:
        super().__init__(broker.core.scheduler, broker.core.accounts, peer.name)
        self.core = broker.core
        self.broker = broker
        self.settings = settings
        self.peer = peer
        #: The time of the last input or look at the clock (monotonic ms).
        self.now_ms: i64 = now_ms
        #: Lines for the log, each with its level, until the shell takes them.
        self.log: list[tuple[str, str]] = []
        #: Why no input is parsed; see `states`.
        self.halted: i64 = 0
        #: True when the shell is to close the socket after it flushed.
        self.finished = False
        self.current = CurrentMethod(broker.core)
        #: The long operation whose end it waits for.
        self.work: ClientTask | None = None
        #: The client's rights; they allow nothing until a vhost is entered.
        self.access = Access(broker.users, "", "")
        self.vhost: Vhost | None = None
        #: Its exclusive queues by their ids.
        self.exclusive_queues: LargeDict[i64, Queue] = LargeDict()
        #: Bytes of contents that are not complete and of transactions that are not committed.
        self.assembling_bytes: i64 = 0
        self.assembling_bytes_max: i64 = ASSEMBLING_BYTES_MAX
        # Wall time, and counters.
        self.connected_at_ms: i64 = broker.core.now_ms
        self.published: i64 = 0
        #: What it did beside publishing; of confirms, those of channels that have ended.
        self.counts: Final = LinkCounts()
        #: The walk over all connections that saw it last (`core.counts`); 0 for none.
        self.walk: i64 = 0
        #: Long deliveries that are being made: there are no others before their end.
        self.preparing: i64 = 0
        #: True once what it held is being released, and true once all of it is.
        self.released = False
        self._is_empty = False

    # -- calls of the shell ------------------------------------------------------------------------

    @abstractmethod
    def receive(self, data: bytes, now_ms: i64) -> None:
        """Take bytes that the peer sent; `now_ms` is monotonic."""

    @abstractmethod
    def take_output(self) -> list[bytes | memoryview]:
        """Return the bytes to send, in order; there may be none."""

    def flushed(self, transport_full: bool) -> None:
        """Note that the transport took the output, and whether it holds too much now."""
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
    def resume_deliveries(self) -> None:
        """Mark the queues of all consumers as having something to deliver."""

    @abstractmethod
    def input_bytes_held(self) -> int:
        """Return how many bytes of input wait to be parsed."""

    @abstractmethod
    def is_authenticated(self) -> bool:
        """Return whether its place is its own, because it has logged in or asked for something."""

    def is_authenticating(self) -> bool:
        """Return whether its login is being judged, or was right and is being completed."""
        return False

    def set_reading(self, reading: bool, now_ms: i64) -> None:
        """Note whether the shell reads the socket from now (monotonic ms) on."""

    @abstractmethod
    def tick(self, now_ms: i64) -> None:
        """Look at the clock (monotonic ms), about once a second."""

    def resumed(self) -> None:
        """Go on after the process was suspended."""

    @abstractmethod
    def lost(self) -> None:
        """End the connection, because its socket is gone."""

    # -- its end -----------------------------------------------------------------------------------

    def release(self, answers: bool) -> None:
        """Requeue what is unacked, end consumers and delete exclusive queues (behaviour 13).

        It goes on in later turns where that is much; `answers` has `answer_close` called at the
        end.
        """
        if self.released:
            return
        self.released = True
        self.broker.leave(self)
        self.writable = False
        self.core.scheduler.start(self._release_all(self.end_channels(), answers))

    def _release_all(self, endings: list[Iterator[int]], answers: bool) -> Iterator[int]:
        """Release what the channels hold, one after the other, and then the exclusive queues.

        It begins after an operation of the client's that is under way.
        """
        before = self.work
        if before is not None:
            # If it waits for a sync, it need not: there is nobody to reply to.
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
        """Forget the channels; return the operations that release what each of them holds."""

    def answer_close(self) -> None:
        """Answer the client's request to close the connection, if the protocol has one."""

    def finish(self) -> None:
        """End the connection: the shell closes the socket once the output is flushed."""
        self.release(False)
        self.finished = True
        self.wake()

    def has_no_socket(self) -> None:
        """Leave the list of connections; what it did is kept in the totals.

        Drop the references of the connection, if all is released.
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
        """Break the cycles between the connection and its parts, so that it is freed at once.

        The garbage collector hardly ever examines old objects: each connection would leave 7 kB.
        As an ended connection may still be called, it shares the parts of another one that ended,
        which the broker keeps.
        """

    # -- its input ---------------------------------------------------------------------------------

    def yield_turn(self) -> None:
        """Parse no more input until it is this connection's turn again."""
        if self.halted & HALT_TURN == 0:
            self.halted |= HALT_TURN
            self.scheduler.turns.add(self)

    def take_turn(self) -> None:
        """Parse on: it is this connection's turn."""
        self.resume(HALT_TURN)

    def waits_for_turn(self) -> bool:
        """Return whether its input waits until others have had their turn."""
        return self.halted & HALT_TURN != 0

    @abstractmethod
    def run(self) -> None:
        """Parse what lies in the input until it ends or the connection is halted."""

    def halt(self, reason: i64) -> None:
        """Parse no more input until `resume` was called for the same reason."""
        self.halted |= reason

    def resume(self, reason: i64) -> None:
        """End a halt: parse on, and have the shell check whether to read the socket."""
        self.halted &= ~reason
        self.wake()
        self.run()

    def spilled(self) -> None:
        """Parse on: what queues had no memory for is written."""
        if self.halted & HALT_SPILL:
            self.resume(HALT_SPILL)

    def is_at_work(self) -> bool:
        """Return whether an operation of the client's is under way."""
        return self.work is not None

    def start(self, operation: Iterator[int]) -> None:
        """Run a long operation for this client (`Task`).

        If its first slice does not complete it, no input is parsed before its end.  It ends with
        the reply to the client, if the client is still there (`awaits_reply`); an AmqpError that it
        raises later reaches the client like one that it raises at once.
        """
        task = ClientTask(self, operation)
        self.core.scheduler.begin(task)
        if not task.over:
            self.work = task
            self.halt(HALT_WORK)

    def survives(self, bug: Exception) -> bool:
        """Log an unexpected exception, and return True, if what met it has changed nothing."""
        if isinstance(bug, MemoryError) or self.current.changed(self.published):
            return False
        self.log.append(("error", f"internal error: {unquoted(bug)}"))
        return True

    @abstractmethod
    def operation_failed(self, error: AmqpError) -> None:
        """Tell the client that the long operation which it waits for has failed."""

    def awaits_reply(self) -> bool:
        """Return whether there is still somebody to answer: the connection is open."""
        return not self.finished

    # -- what it asks of the broker ----------------------------------------------------------------

    def enter_vhost(self, name: str) -> None:
        """Enter a vhost as its user.  Raises: NotAllowed (530) as `Broker.enter`."""
        self.vhost = self.broker.enter(self, name)
        self.access = Access(self.broker.users, self.user, name)
        self.as_owner = self.access.owner
        self.unacked.user = self.user

    def access_changed(self) -> None:
        """Read the user's permissions again: what they no longer allow ends (behaviour 74).

        What a transaction holds is checked once more when it is committed.
        """
        self.access.forget()

    def publisher_blocked(self) -> None:
        """Halt until the alarm is over: it published during one.  Raises: ResourceFault (506)."""
        self.halt(HALT_ALARM)

    def alarm(self, blocked: bool, reason: str) -> None:
        """Parse on when the alarm is over (behaviour 16)."""
        if not blocked and self.halted & HALT_ALARM:
            self.resume(HALT_ALARM)

    def check_publisher(self, recorded: bool) -> None:
        """After each publish, `recorded` or not: halt while an alarm is on or too much waits."""
        if recorded and self.core.journal.unsynced_bytes > UNSYNCED_BYTES_MAX:
            self.halted |= HALT_SYNC
            self.core.syncs.wait(self, self.core.journal.durable_group + 1)
        if self.core.spill.unwritten_bytes > SPILL_BYTES_MAX:
            self.halted |= HALT_SPILL
            self.core.wait_spilled(self)
        if self.broker.blocked:
            self.publisher_blocked()

    def count_input(self, data: bytes, now_ms: i64) -> None:
        """Count bytes that the peer sent; `now_ms` is monotonic."""
        self.now_ms = now_ms
        counts = self.counts
        counts.received_bytes += len(data)
        counts.received_packets += 1
        self.core.scheduler.spent += len(data) // INPUT_BYTES_PER_COST

    def count_output(self, parts: list[bytes | memoryview]) -> None:
        """Count bytes that the shell takes to send them."""
        counts = self.counts
        counts.sent_packets += 1
        for part in parts:
            counts.sent_bytes += len(part)

    def count_published(self, size: i64) -> None:
        """Count a publish with a body of `size` bytes."""
        self.published += 1
        self.core.sizes.note(size)

    def add_counts(self, counts: LinkCounts) -> None:
        """Add what the connection did."""
        counts.add(self.counts)
        counts.published += self.published

    def assemble(self, size: i64) -> None:
        """Count bytes that wait for their content's end or their transaction's commit.

        Raises: ResourceFault (506) when the connection holds too much of that, or the broker has
        no memory left even for what was begun.
        """
        self.assembling_bytes += size
        self.core.memory.assemble(size)
        most = self.assembling_bytes_max
        if self.assembling_bytes > most:
            raise ResourceFault(f"a connection's contents and transactions hold {most} bytes")
        if self.broker.blocked:
            self.check_memory()

    def end_assembly(self, size: i64) -> None:
        """Count bytes no longer whose content or transaction has ended."""
        self.assembling_bytes -= size
        self.core.memory.end_assembly(size)

    def check_memory(self) -> None:
        """Refuse more content when the memory is used up in spite of the alarm.

        Raises: ResourceFault (506).
        """
        if self.broker.is_overfull():
            raise ResourceFault("no memory left for what was begun before the alarm")

    def reads_on(self) -> bool:
        """Return whether the shell is to read the socket: there is not enough in hand yet.

        A publisher that an alarm has blocked may be so for long, and is one of many.
        """
        halted = self.halted
        if halted == 0:
            return True
        most: i64 = INPUT_BYTES_BLOCKED_MAX if halted & HALT_ALARM else INPUT_BYTES_HELD_MAX
        return self.input_bytes_held() <= most

    def settle_unacked(self) -> None:
        """Once a second: have deliveries that waited for room go on."""
        if self.unacked.settle():
            self.resume_deliveries()
        warning = self.unacked.warning()
        if warning:
            self.log.append(("warning", warning))

    def keep_exclusive(self, queue: Queue) -> None:
        """Note a new exclusive queue, which is deleted with the connection."""
        self.exclusive_queues[queue.queue_id] = queue

    def lose_exclusive(self, queue_id: i64) -> None:
        """Forget an exclusive queue that is deleted: a client may use one after the other."""
        self.exclusive_queues.pop(queue_id)

    def drop_exclusive(self) -> Iterator[int]:
        """Delete its exclusive queues (behaviour 13)."""
        vhost = self.vhost
        while len(self.exclusive_queues) > 0:
            queue = self.exclusive_queues.popitem()[1]
            if vhost is not None:
                vhost.queues.drop(queue)
            yield 1


@final
class ClientTask(Task):
    """A long operation that a client asked for; its connection parses nothing before the end.

    It goes on when the connection is lost.
    """

    def __init__(self, session: ClientSession, operation: Iterator[int]) -> None:
        super().__init__(session.scheduler, operation)
        self._session = session
        self._error: AmqpError | None = None

    def keeps(self, error: AmqpError) -> bool:
        """Keep an error of a later slice, to be answered at the end."""
        if self.began:
            self._error = error.with_traceback(None)
        return self.began

    def ended(self) -> None:
        """Answer where it failed, and parse on."""
        session = self._session
        super().ended()
        session.work = None
        error = self._error
        if error is not None:
            self._error = None
            # The method that asked for it is still the current one.
            session.operation_failed(error)
        # What the failure leads to may take long as well, and parses on at its own end.
        if session.halted & HALT_WORK and not session.is_at_work():
            session.resume(HALT_WORK)
