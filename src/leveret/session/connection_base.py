"""What a connection is to its channels and its parts: its output, accounts, reasons to wait, ends.

`Connection` extends this class and puts the parts together.  They see nothing of each other but
what is here.

Invariant: `state` and `halted` change in this class alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.core.effects import Cancels
from leveret.broker.core.turn import Link
from leveret.broker.node.access import Access
from leveret.errors import AmqpError, ResourceFault
from leveret.limits import (
    ASSEMBLING_BYTES_MAX,
    FRAME_BYTES_MIN,
    FRAME_OVERHEAD_BYTES,
    SPILL_BYTES_MAX,
    UNSYNCED_BYTES_MAX,
)
from leveret.session.current_method import CurrentMethod
from leveret.session.states import (
    AWAITING_HEADER,
    HALT_SPILL,
    HALT_SYNC,
    VHOST_ENTERED,
    halts_in,
    next_state,
)
from leveret.wire.buffer import BytesWriter
from leveret.wire.content.output import FrameOutput
from leveret.wire.content.publish import PublishShape
from leveret.wire.frames import FrameReader, write_method

if TYPE_CHECKING:
    from leveret.broker.node.broker import Broker
    from leveret.broker.queue.queue import Queue
    from leveret.broker.vhost.vhost import Vhost
    from leveret.session.settings import Peer, SessionSettings, Tokens
    from leveret.wire.method import Method


@final
class Capabilities:
    """What a client says that it understands, in the table of connection.start-ok."""

    def __init__(self, client_properties: dict[str, object]) -> None:
        table = client_properties.get("capabilities")
        said = table if isinstance(table, dict) else {}
        self.cancel_notify = said.get("consumer_cancel_notify") is True
        self.blocked = said.get("connection.blocked") is True
        self.failure_close = said.get("authentication_failure_close") is True
        #: It is to hear of messages that were taken before (`ALREADY_TAKEN`).
        self.already_taken = said.get("leveret.already_taken") is True


class ConnectionBase(Link):
    """A connection without the parts that `Connection` is composed of."""

    def __init__(
        self, broker: Broker, settings: SessionSettings, tokens: Tokens, peer: Peer, now_ms: i64
    ) -> None:
        super().__init__(broker.turn, peer.name)
        self.broker = broker
        self.settings = settings
        self.tokens = tokens
        self.peer = peer
        #: The time of the last input or look at the clock (monotonic ms).
        self.now_ms: i64 = now_ms
        self.log: list[tuple[str, str]] = []
        #: See `states`.
        self.state: i64 = AWAITING_HEADER
        self.halted: i64 = 0
        # Input.
        self.current = CurrentMethod(broker.turn)
        self.reader = FrameReader(FRAME_BYTES_MIN)
        self.shape = PublishShape(FRAME_BYTES_MIN, settings.message_bytes_max)
        # Output; the reply that waits for its sync, and the consumers that are cancelled after it.
        self.output = FrameOutput(FRAME_BYTES_MIN - FRAME_OVERHEAD_BYTES)
        self.held_reply = b""
        self.held_cancels: Cancels | None = None
        # What was negotiated.
        self.capabilities = Capabilities({})
        self.frame_bytes_max: i64 = FRAME_BYTES_MIN
        self.channels_max: i64 = settings.channels_max
        # The client; `access` allows nothing until a vhost is entered.
        self.access = Access(broker.users, "", "")
        self.vhost: Vhost | None = None
        self.exclusive_queues: list[Queue] = []
        #: Bytes of contents that are not complete and of transactions that are not committed.
        self.assembling_bytes: i64 = 0
        self.assembling_bytes_max: i64 = ASSEMBLING_BYTES_MAX
        # Counters.
        self.published: i64 = 0

    # -- what the whole connection does ------------------------------------------------------------

    def run(self) -> None:
        """Parse what lies in the input until it ends or the connection is halted."""
        raise RuntimeError("a connection parses its input")

    def publisher_blocked(self) -> None:
        """Block the connection: it published during an alarm.  Raises: ResourceFault (506)."""
        raise RuntimeError("a connection knows what an alarm means to a publisher")

    def fail_channel(self, number: i64, error: AmqpError) -> None:
        """Close a channel with an error that no method of the client caused."""
        raise RuntimeError("a connection closes its channels")

    def close(self, error: AmqpError) -> None:
        """Close the connection with the code of `error`; what it held is released at once."""
        raise RuntimeError("a connection says how it closes")

    def release(self) -> None:
        """Requeue what is unacked, end consumers and delete exclusive queues (behaviour 13)."""
        raise RuntimeError("a connection knows its channels")

    def finish(self) -> None:
        """End the connection: the shell closes the socket once the output is flushed."""
        raise RuntimeError("a connection says how it ends")

    # -- state -------------------------------------------------------------------------------------

    def advance(self, event: int) -> None:
        """Go to the state that `event` leads to."""
        following = next_state(self.state, event)
        self.state = following
        self.halted = halts_in(following, self.halted)

    def halt(self, reason: i64) -> None:
        """Parse no more input until `resume` was called for the same reason."""
        self.halted |= reason

    def end_halt(self, reason: i64) -> None:
        """End a halt without parsing on."""
        self.halted &= ~reason

    def resume(self, reason: i64) -> None:
        """End a halt: parse on, and have the shell check whether to read the socket."""
        self.halted &= ~reason
        self.wake()
        self.run()

    def take_capabilities(self, client_properties: dict[str, object]) -> None:
        """Note what the client says that it understands."""
        self.capabilities = Capabilities(client_properties)

    def tune(self, frame_bytes_max: i64, channels_max: i64) -> None:
        """Take what was negotiated; a payload may be as large as the frame (see `limits`)."""
        self.frame_bytes_max = frame_bytes_max
        if frame_bytes_max == 0:
            self.shape.payload_bytes_max = 0x7FFFFFFF
            self.output.body_bytes_max = 0x7FFFFFFF
        else:
            self.shape.payload_bytes_max = frame_bytes_max
            self.output.body_bytes_max = frame_bytes_max - FRAME_OVERHEAD_BYTES
        self.reader.frame_max = frame_bytes_max
        self.channels_max = channels_max if channels_max > 0 else 65_535

    def authenticated(self, user: str) -> None:
        """Set the user that logged in."""
        self.user = user

    def enter(self, name: str) -> None:
        """Enter a vhost.  Raises: NotAllowed (530) as `Broker.enter`."""
        self.vhost = self.broker.enter(self, name)
        self.access = Access(self.broker.users, self.user, name)
        self.as_owner = self.access.owner
        self.advance(VHOST_ENTERED)

    # -- output ------------------------------------------------------------------------------------

    def send(self, number: i64, method: Method) -> None:
        """Write a method frame."""
        write_method(self.output.writer, number, method)
        self.wake()

    def reply(self, number: i64, method: Method) -> None:
        """Write the answer to the method at hand, after the sync that it depends on.

        What the method has caused follows it; what others have caused does not wait for it.
        """
        turn = self.turn
        group = turn.reply_group
        if turn.must_wait(group):
            writer = BytesWriter()
            write_method(writer, number, method)
            self.held_reply = writer.getvalue()
            self.halted |= HALT_SYNC
            turn.wait(self, group)
            if turn.cancelled and turn.cancelled_group <= group:
                # They wait by themselves too: this connection may be gone by then.
                self.held_cancels = cancels = turn.take_cancels()
                turn.wait(cancels, group)
        else:
            self.send(number, method)
            turn.notify_cancelled()

    def write_held(self) -> None:
        """Write the reply whose sync is done, and what follows it."""
        if self.held_reply:
            self.output.writer.write(self.held_reply)
            self.held_reply = b""
        cancels = self.held_cancels
        if cancels is not None:
            self.held_cancels = None
            cancels.notify()

    def drop_held(self) -> None:
        """Forget the reply that waits: the connection closes."""
        self.held_reply = b""

    def stop_deliveries(self) -> None:
        """Stop deliveries until the client has read the output."""
        self.writable = False

    # -- what its channels hold and do -------------------------------------------------------------

    def check_publisher(self, recorded: bool) -> None:
        """After each publish, `recorded` or not: halt while an alarm is on or too much waits."""
        if recorded and self.turn.journal.unsynced_bytes > UNSYNCED_BYTES_MAX:
            self.halted |= HALT_SYNC
            self.turn.wait(self, self.turn.journal.durable_group + 1)
        if self.turn.spill.unwritten_bytes > SPILL_BYTES_MAX:
            self.halted |= HALT_SPILL
            self.turn.wait_spilled(self)
        if self.broker.blocked:
            self.publisher_blocked()

    def count_published(self) -> None:
        """Count a publish."""
        self.published += 1

    def assemble(self, size: i64) -> None:
        """Count bytes that wait for their content's end or their transaction's commit.

        Raises: ResourceFault (506) when the connection holds too much of that, or the broker has
        no memory left even for what was begun.
        """
        self.count_assembling(size)
        most = self.assembling_bytes_max
        if self.assembling_bytes > most:
            raise ResourceFault(f"a connection's contents and transactions hold {most} bytes")
        if self.broker.blocked:
            self.check_memory()

    def count_assembling(self, size: i64) -> None:
        """Count such bytes without a look at the limit; fewer of them if `size` is below 0."""
        self.assembling_bytes += size
        self.turn.assembling_bytes += size

    def check_memory(self) -> None:
        """Refuse more content when the memory is used up in spite of the alarm.

        Raises: ResourceFault (506).
        """
        if self.broker.is_overfull():
            raise ResourceFault("no memory left for what was begun before the alarm")

    def keep_exclusive(self, queue: Queue) -> None:
        """Note a new exclusive queue, which is deleted with the connection."""
        # Deleted ones are forgotten here: a client may use one after the other for long.
        live = [held for held in self.exclusive_queues if not held.deleted]
        live.append(queue)
        self.exclusive_queues = live
