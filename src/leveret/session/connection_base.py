"""The base of `AmqpConnection` that its channels and parts use: output, replies, state, closing.

`AmqpConnection` extends this class and assembles the parts.  The parts use the connection only
through this class and `ClientSession`.

Invariant: `state` and `halted` change only in these two classes.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.scheduler.cancels import CancelledConsumers
from leveret.errors import AmqpError
from leveret.limits import (
    FRAME_BYTES_MIN,
    FRAME_OVERHEAD_BYTES,
)
from leveret.session.client_session import ClientSession
from leveret.session.states import (
    AWAITING_HEADER,
    FOLLOWING,
    HALT_SYNC,
    OPEN,
    halts_in,
)
from leveret.wire.buffer import BytesWriter
from leveret.wire.content.output import FrameOutput
from leveret.wire.content.publish import PublishShape
from leveret.wire.frames import FrameReader, write_method

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.broker.publishers.publish_sessions import PublishSession
    from leveret.session.settings import Peer, SessionSettings, Tokens
    from leveret.wire.method import Method


@final
class Capabilities:
    """The capabilities that a client announces in connection.start-ok."""

    def __init__(self, client_properties: dict[str, object]) -> None:
        table = client_properties.get("capabilities")
        said = table if isinstance(table, dict) else {}
        self.cancel_notify = said.get("consumer_cancel_notify") is True
        self.blocked = said.get("connection.blocked") is True
        self.failure_close = said.get("authentication_failure_close") is True
        #: The client accepts reports of duplicates of earlier messages (`ALREADY_TAKEN`).
        self.already_taken = said.get("leveret.already_taken") is True


class ConnectionBase(ClientSession):
    """A connection without the parts that `AmqpConnection` adds."""

    def __init__(
        self, broker: Broker, settings: SessionSettings, tokens: Tokens, peer: Peer, now_ms: i64
    ) -> None:
        super().__init__(broker, settings, peer, now_ms)
        self.tokens = tokens
        #: See `states`.
        self.state: i64 = AWAITING_HEADER
        # Input.
        self.reader = FrameReader(FRAME_BYTES_MIN)
        self.shape = PublishShape(FRAME_BYTES_MIN, settings.message_bytes_max)
        # Output; the reply that waits for its sync, and the consumers to cancel after it.
        self.output = FrameOutput(FRAME_BYTES_MIN - FRAME_OVERHEAD_BYTES)
        self.held_reply = b""
        self.held_cancels: CancelledConsumers | None = None
        #: Tracks which publishes succeeded, for a client that asks for it after a lost connection.
        self.publish_session: PublishSession | None = None
        # Negotiated values.
        self.capabilities = Capabilities({})
        self.frame_bytes_max: i64 = FRAME_BYTES_MIN
        self.channels_max: i64 = settings.channels_max

    # -- for the whole connection ------------------------------------------------------------------

    @abstractmethod
    def fail_channel(self, number: i64, error: AmqpError) -> None:
        """Close a channel with an error that was not caused by a method of the client."""

    @abstractmethod
    def close(self, error: AmqpError) -> None:
        """Close the connection with the code of `error`, and begin to release its resources."""

    def awaits_reply(self) -> bool:
        """Return whether the connection is open."""
        return self.state == OPEN

    # -- state -------------------------------------------------------------------------------------

    def advance(self, state: i64) -> None:
        """Enter a state.  Raises: RuntimeError if it cannot follow the current one."""
        if state not in FOLLOWING[int(self.state)]:
            raise RuntimeError(f"state {state} cannot follow {self.state} of a connection")
        self.state = state
        self.halted = halts_in(state, self.halted)

    def tune(self, frame_bytes_max: i64, channels_max: i64) -> None:
        """Apply the negotiated values; a payload may be as large as the frame (see `limits`)."""
        self.frame_bytes_max = frame_bytes_max
        if frame_bytes_max == 0:
            self.shape.payload_bytes_max = 0x7FFFFFFF
            self.output.body_bytes_max = 0x7FFFFFFF
        else:
            self.shape.payload_bytes_max = frame_bytes_max
            self.output.body_bytes_max = frame_bytes_max - FRAME_OVERHEAD_BYTES
        self.reader.frame_max = frame_bytes_max
        self.channels_max = channels_max if channels_max > 0 else 65_535

    # -- output ------------------------------------------------------------------------------------

    def send(self, number: i64, method: Method) -> None:
        """Write a method frame."""
        write_method(self.output.writer, number, method)
        self.wake()

    def reply(self, number: i64, method: Method) -> None:
        """Write the reply to the current method, after the sync that it depends on.

        Cancels that the method caused follow the reply; those of other methods do not wait for it.
        """
        core = self.core
        group = core.syncs.reply_group
        if core.syncs.must_wait(group):
            writer = BytesWriter()
            write_method(writer, number, method)
            self.held_reply = writer.getvalue()
            self.halted |= HALT_SYNC
            core.syncs.wait(self, group)
            if core.scheduler.cancels.are_due(group):
                # The cancels also wait on their own, because this connection may have ended by
                # the time of the sync.
                self.held_cancels = cancels = core.scheduler.cancels.take()
                core.syncs.wait(cancels, group)
        else:
            self.send(number, method)
            core.scheduler.cancels.notify()

    def write_held(self) -> None:
        """Write the held reply and the cancels that follow it, because their sync is done."""
        if self.held_reply:
            self.output.writer.write(self.held_reply)
            self.held_reply = b""
        cancels = self.held_cancels
        if cancels is not None:
            self.held_cancels = None
            cancels.notify()
