"""The content that a channel receives frame by frame: a content header and its body frames.

This is the path for publishes that are not complete in one piece of input.  It also detects illegal
frame sequences and sizes: behaviours 9 (content order), 10 (empty bodies) and 20 (large bodies).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed, SyntaxFault, UnexpectedFrame
from leveret.session.connection_base import ConnectionBase
from leveret.store.journal.body_ahead import BodyAhead
from leveret.wire.buffer import read_i16_be, read_i64_be
from leveret.wire.content.body_buffer import BodyBuffer
from leveret.wire.frames import CONTENT_HEAD_BYTES
from leveret.wire.methods.ids import BASIC
from leveret.wire.properties import PERSISTENT, skim_properties

#: The frame expected next: a method, a content header, or a content body.
NO_CONTENT: Final = 0
AWAITING_CONTENT_HEADER: Final = 1
AWAITING_BODY: Final = 2

#: The size from which the body of a persistent message is written to the journal while it arrives,
#: and the unsynced bytes of the journal beyond which its connection is not read meanwhile.  Other
#: publishers wait until so many bytes are synced, and not until the whole body is.
BODY_AHEAD_BYTES: Final = 4 * 1024 * 1024
BODY_AHEAD_UNSYNCED_BYTES_MAX: Final = 4 * 1024 * 1024

#: Properties of at most this many bytes are not counted while they wait for their body.
_PROPERTIES_UNCOUNTED: Final = 1024


@final
class IncomingContent:
    """The content of a channel's current basic.publish, as far as it has arrived."""

    def __init__(self, connection: ConnectionBase) -> None:
        self._connection = connection
        self.state: i64 = NO_CONTENT
        self.arguments = b""
        self.properties = b""
        self.persistent = False
        self._left: i64 = 0
        #: A body that arrived in one frame, or the parts of one in several frames.
        self._whole = b""
        self._pieces: BodyBuffer | None = None
        #: The bytes booked by the connection, and those allocated ahead for the rest of the body.
        self._booked: i64 = 0
        self._ahead: i64 = 0
        #: The body in the journal, if it is written there while it arrives.
        self._journal_body: BodyAhead | None = None

    def begin(self, arguments: bytes) -> None:
        """Expect the content of a basic.publish with these arguments."""
        self.state = AWAITING_CONTENT_HEADER
        self.arguments = arguments

    def take_header(self, data: bytes, start: i64, end: i64) -> bool:
        """Handle a content header frame; return whether the content is complete.

        Raises: UnexpectedFrame (505) out of sequence or for another class; SyntaxFault (502);
        PreconditionFailed (406) for a body over the limit.
        """
        if self.state != AWAITING_CONTENT_HEADER:
            raise UnexpectedFrame("a content header without a method that has content")
        if end - start < CONTENT_HEAD_BYTES + 2:
            raise SyntaxFault("a content header ends early")
        if read_i16_be(data, start) != BASIC:
            raise UnexpectedFrame("a content header of another class than its method's")
        size: i64 = read_i64_be(data, start + 4)
        most: i64 = self._connection.settings.message_bytes_max
        mode = skim_properties(data, start + CONTENT_HEAD_BYTES, end)
        self.persistent = mode == PERSISTENT
        if size < 0 or size > most:
            self.state = NO_CONTENT
            raise PreconditionFailed(
                f"message size {size & 0x7FFFFFFFFFFFFFFF} is larger than configured max size "
                f"{most}"
            )
        self.properties = data[start + CONTENT_HEAD_BYTES : end]
        self._left = size
        self.state = AWAITING_BODY
        properties_bytes: i64 = len(self.properties)
        if size > 0 and properties_bytes > _PROPERTIES_UNCOUNTED:
            # Count them, because on each channel they may wait for a body that never arrives.
            self._booked = properties_bytes
            self._connection.assemble(properties_bytes)
        return size == 0

    def is_large(self) -> bool:
        """Return whether the message is persistent and large enough for `journal_body`."""
        return self.persistent and self._left >= BODY_AHEAD_BYTES

    def journal_body(self) -> None:
        """Write the body to the journal while it arrives."""
        self._journal_body = BodyAhead(self._connection.core.journal)

    def take_body(self, data: bytes, start: i64, end: i64) -> bool:
        """Handle a body frame; return whether the content is complete.

        Raises: UnexpectedFrame (505) out of sequence or beyond the announced size; ResourceFault
        (506) as `ClientSession.assemble`.
        """
        if self.state != AWAITING_BODY:
            raise UnexpectedFrame("a content body without a content header")
        size: i64 = end - start
        if size > self._left:
            raise UnexpectedFrame("a content body goes beyond the size that its header announced")
        pieces = self._pieces
        left: i64 = self._left - size
        if left == 0 and pieces is None:
            self._whole = data[start:end]
        else:
            if pieces is None:
                pieces = self._pieces = BodyBuffer(self._left)
            pieces.write(memoryview(data)[start:end])
            if self._journal_body is not None:
                if self._connection.broker.blocked:
                    # Parts of messages that are not accepted must not take the last of the disk.
                    self.end_journal_body()
                else:
                    self._journal_body.write(data[start:end])
                    self._connection.check_unsynced(BODY_AHEAD_UNSYNCED_BYTES_MAX)
            self._booked += size
            ahead: i64 = pieces.ahead()
            self._connection.core.memory.assemble(ahead - self._ahead)
            self._ahead = ahead
            self._connection.assemble(size)
        self._left = left
        return left == 0

    def take_whole(self) -> bytes:
        """Return the body of a complete content, and forget the content.

        Call `end_journal_body` once the message is journaled, or is known not to be.
        """
        pieces = self._pieces
        whole = self._whole if pieces is None else pieces.body()
        if self._journal_body is not None:
            self._journal_body.complete(whole)
        self._await_no_more()
        return whole

    def end_journal_body(self) -> None:
        """End the body in the journal, if there is one."""
        if self._journal_body is not None:
            self._journal_body.end()
            self._journal_body = None

    def end(self) -> None:
        """Drop the content, and free the part of it that has arrived."""
        if self._pieces is not None:
            self._connection.core.memory.free_later([self._pieces])
        self.end_journal_body()
        self._await_no_more()

    def _await_no_more(self) -> None:
        self.state = NO_CONTENT
        self._whole = b""
        self._pieces = None
        if self._booked > 0:
            self._connection.core.memory.end_assembly(self._ahead)
            self._connection.end_assembly(self._booked)
            self._ahead = 0
            self._booked = 0
