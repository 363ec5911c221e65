"""The connection of a sink to its broker: its interruptions, and pieces sent over it.

Invariants: every piece is confirmed before `finish` returns.  With `repeats`, unconfirmed pieces
are sent again in order after a lost connection, which is right only if the broker drops repeated
messages; without it a lost connection fails the task.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from leveret.client import Nacked, ReturnedMessage
from leveret.client.blocking import Channel, Connection
from leveret.client.blocking.publisher import BulkPublisher
from leveret.client.publish_frames import PublishFrames
from leveret.spark.connection.connecting import (
    INTERRUPTIONS,
    interrupted,
    open_connection,
    place_of,
)
from leveret.spark.connection.retries import REAL_PAUSE, ConnectionRetries, Pause, ask
from leveret.spark.errors import SourceError
from leveret.spark.transport import Interrupted
from leveret.spark.write.options import WriteOptions

#: The unconfirmed bytes that a task keeps so that it can send them again.  Large bodies reach this
#: limit before the window of messages.
_KEPT_BYTES: Final = 64 * 1024 * 1024


#: With this capability, Leveret returns messages that it had received before; others ignore it.
_CAPABILITIES: Final = {"leveret.already_taken": True}

#: The reply code of such a return.
_ALREADY_TAKEN: Final = 208


class WriteError(SourceError, RuntimeError):
    """The broker did not accept rows; the text says why."""


def open_link(
    options: WriteOptions, *, beats: bool = True, pause: Pause = REAL_PAUSE
) -> Connection:
    """Connect, retrying while the broker starts; without `beats` there are no heartbeats.

    Raises: Interrupted; the exceptions of a refused login.
    """
    return ask(options, f"a write to {options.title}", lambda: _connected(options, beats), pause)


def _connected(options: WriteOptions, beats: bool) -> Connection:
    """Connect once.  Raises: as `open_link`."""
    parameters = options.parameters()
    if not beats and parameters.heartbeat_seconds is None:
        parameters = dataclasses.replace(parameters, heartbeat_seconds=0)
    return open_connection(parameters, f"leveret spark write {options.title}", _CAPABILITIES)


def close_link(connection: Connection) -> None:
    """Close a connection that may be lost already."""
    try:
        connection.close()
    except INTERRUPTIONS:
        connection.abort()


def _refused(error: Nacked) -> WriteError:
    """Return the error for a message that the broker refused."""
    return WriteError(
        f"{error}: a queue was full (x-overflow=reject-publish), or the broker had to drop the "
        "message"
    )


@dataclass(slots=True)
class _Sent:
    """A piece that was sent; `end` counts all messages up to its last."""

    end: int
    frames: bytes
    count: int


class Sender:
    """Sends pieces of encoded messages on its own channel of the given connection.

    Returned messages are passed to `returned`, in order and before anything later is sent.
    """

    def __init__(
        self,
        options: WriteOptions,
        connection: Connection,
        repeats: bool,
        returned: Callable[[ReturnedMessage], None],
        kept_bytes_max: int = _KEPT_BYTES,
    ) -> None:
        self._options = options
        self._connection = connection
        self._publisher = self._opened(connection)
        self._returned = returned
        self._retries = ConnectionRetries(options, f"a write to {options.title}")
        self._kept: deque[_Sent] | None = deque() if repeats else None
        self._kept_bytes_max = kept_bytes_max
        #: Messages that the broker had received before this task sent them.
        self.known = 0
        #: The pieces that are kept to be sent again.
        self.kept_bytes = 0
        self._came_back: deque[ReturnedMessage] = deque()
        self._handing = False
        self._sent = 0
        #: The number of messages sent before the first message of the current connection.
        self._base = 0
        self.frames = PublishFrames(self._publisher.channel.number, connection.session.frame_max)

    def _opened(self, connection: Connection) -> BulkPublisher:
        """Open a channel."""
        options = self._options
        return BulkPublisher(connection, options.max_in_flight, options.confirm_timeout_ms)

    @property
    def channel(self) -> Channel:
        """The channel, for requests other than publishes."""
        return self._publisher.channel

    def send(self, frames: bytes, count: int) -> None:
        """Send a piece.  Raises: WriteError; Interrupted; the channel's error."""
        if self._kept is not None:
            if self.kept_bytes + len(frames) > self._kept_bytes_max:
                self._try(BulkPublisher.wait_until_confirmed)
            self._kept.append(_Sent(self._sent + count, frames, count))
            self.kept_bytes += len(frames)
        self._sent += count
        self._try(lambda publisher: publisher.send(frames, count))
        self._hand_back()

    def finish(self) -> None:
        """Wait until everything is confirmed and all returns are handled.  Raises: as `send`."""
        while True:
            self._try(BulkPublisher.wait_until_confirmed)
            if not self._hand_back():
                return

    def close(self) -> None:
        """Close the connection."""
        close_link(self._connection)

    def _hand_back(self) -> bool:
        """Pass on returned messages, in order; return whether there were any."""
        self._came_back += self._publisher.take_returned()
        if self._handing or not self._came_back:
            return False  # the callback may send, and so re-enter this method
        self._handing = True
        while self._came_back:
            message = self._came_back.popleft()
            if message.reply_code == _ALREADY_TAKEN:
                self.known += 1
            else:
                self._returned(message)
        self._handing = False
        return True

    def _try(self, action: Callable[[BulkPublisher], None]) -> None:
        """Run an action, and repeat it on new connections as far as that is allowed."""
        try:
            action(self._publisher)
        except Nacked as error:
            raise _refused(error) from error
        except INTERRUPTIONS as error:
            self._repeat(error)
        self._forget_confirmed()

    def _forget_confirmed(self) -> None:
        """Forget the pieces that are fully confirmed."""
        kept = self._kept or deque()
        while kept and kept[0].end < self._base + self._publisher.lowest_unconfirmed:
            self.kept_bytes -= len(kept.popleft().frames)
            self._retries.succeeded()

    def _repeat(self, error: Exception) -> None:
        """Connect again and send the unconfirmed pieces.  Raises: Interrupted; WriteError."""
        if self._kept is None:
            raise Interrupted(
                f"{interrupted(error, place_of(self._options.uri))}; rows may have been taken that "
                "were not confirmed, so this task must not send them again by itself"
            ) from error
        while True:
            again = error if isinstance(error, Interrupted) else interrupted(error)
            self._retries.failed(again)
            self._forget_confirmed()
            self._came_back += self._publisher.take_returned()
            close_link(self._connection)
            try:
                self._connect_anew(self._kept)
                for piece in self._kept:
                    self._publisher.send(piece.frames, piece.count)
                self._publisher.wait_until_confirmed()
                # The broker may have received some of these from this very task.
                self._came_back += [
                    message
                    for message in self._publisher.take_returned()
                    if message.reply_code != _ALREADY_TAKEN
                ]
                return
            except Nacked as refusal:
                raise _refused(refusal) from refusal
            except (*INTERRUPTIONS, Interrupted) as failure:
                error = failure

    def _connect_anew(self, kept: deque[_Sent]) -> None:
        """Return a new connection with the same frame size, so that the kept pieces fit."""
        self._connection = _connected(self._options, beats=False)
        self._publisher = self._opened(self._connection)
        self._base = kept[0].end - kept[0].count if kept else self._sent
        frames = PublishFrames(self.channel.number, self._connection.session.frame_max)
        if (frames.channel, frames.frame_max) != (self.frames.channel, self.frames.frame_max):
            raise WriteError(
                "the broker came back with another frame_max: the task has to be run again"
            )
