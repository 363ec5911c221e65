"""The frames of HareMQ's protocol.

    i32 length | i32 name length | name, NUL | protobuf message | u32 adler32

All numbers are big-endian.  `length` counts everything after itself, the name's length includes the
NUL, and the checksum (seed 1) covers everything between `length` and itself.  No input can be
parsed after an invalid frame.

A name consists of a protobuf package and a message, such as `hare_mq.openChannelRequest`.  Other
brokers have the same messages in their own packages, so the first frame of a connection sets the
package of all its messages, including responses.
"""

from __future__ import annotations

import zlib
from typing import Final, final

from mypy_extensions import i32, i64

from leveret.errors import FrameError
from leveret.haremq.long_publish import LongPublish
from leveret.limits import (
    HAREMQ_FRAME_BYTES_MAX,
    HAREMQ_FRAME_BYTES_MIN,
    HAREMQ_NAME_BYTES_MAX,
    HAREMQ_REQUEST_BYTES_MAX,
)
from leveret.wire.buffer import BytesWriter, read_i32_be, write_i32_be
from leveret.wire.frames import PieceReader

# -- the requests of a client ----------------------------------------------------------------------

#: A frame whose name is none of the requests below.
UNKNOWN: Final = 0

OPEN_CHANNEL: Final = 1
CLOSE_CHANNEL: Final = 2
DECLARE_EXCHANGE: Final = 3
DELETE_EXCHANGE: Final = 4
DECLARE_QUEUE: Final = 5
DELETE_QUEUE: Final = 6
BIND: Final = 7
UNBIND: Final = 8
PUBLISH: Final = 9
ACK: Final = 10
CONSUME: Final = 11
CANCEL: Final = 12
QUERY: Final = 13

#: A publish that exceeds the size limit of other requests.
LONG_PUBLISH: Final = 14

#: HareMQ's own package.
PACKAGE: Final = "hare_mq"

#: An unsupported package with the same messages.  Its exchange types and delivery modes begin with
#: 0, so a fanout exchange would become a direct one, and durable messages would be lost.
_OTHERWISE: Final = b"hz_mq."

#: The name of each request.
REQUESTS: Final = {
    OPEN_CHANNEL: "openChannelRequest",
    CLOSE_CHANNEL: "closeChannelRequest",
    DECLARE_EXCHANGE: "declareExchangeRequest",
    DELETE_EXCHANGE: "deleteExchangeRequest",
    DECLARE_QUEUE: "declareQueueRequest",
    DELETE_QUEUE: "deleteQueueRequest",
    BIND: "bindRequest",
    UNBIND: "unbindRequest",
    PUBLISH: "basicPublishRequest",
    ACK: "basicAckRequest",
    CONSUME: "basicConsumeRequest",
    CANCEL: "basicCancelRequest",
    QUERY: "basicQueryRequest",
}

#: The kinds of requests by their names without the package; some packages name two differently.
_KINDS: Final[dict[bytes, int]] = {
    **{name.encode(): kind for kind, name in REQUESTS.items()},
    b"queueBindRequest": BIND,
    b"queueUnBindRequest": UNBIND,
    b"queueUnbindRequest": UNBIND,
}

#: The sizes of both lengths together, of one length, and of the checksum.
_HEAD_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_CHECKSUM_BYTES: Final = 4


# -- writing ---------------------------------------------------------------------------------------

#: The modulus of adler32.
_ADLER: Final[i64] = 65_521


def joined_checksum(first: i64, second: i64, second_bytes: i64) -> i64:
    """Return the adler32 of two concatenated byte strings from the adler32 of each."""
    before: i64 = first & 0xFFFF
    low: i64 = (before + (second & 0xFFFF) - 1) % _ADLER
    high: i64 = ((first >> 16) + (second >> 16) + second_bytes % _ADLER * (before - 1)) % _ADLER
    return high << 16 | low


@final
class HareFrameWriter:
    """Writes the frames of messages with one name in one package."""

    def __init__(self, name: str, prefix: bytes = f"{PACKAGE}.".encode()) -> None:
        raw = prefix + name.encode() + b"\0"
        head = BytesWriter()
        write_i32_be(head, i32(len(raw)))
        head.write(raw)
        self._head: Final = head.getvalue()
        self._checksum: Final = zlib.adler32(self._head)

    def write(self, w: BytesWriter, message: bytes) -> None:
        """Write the frame of an encoded message."""
        head = self._head
        size: i64 = len(head) + len(message) + _CHECKSUM_BYTES
        write_i32_be(w, i32(size))
        w.write(head)
        w.write(message)
        checksum: i64 = i64(zlib.adler32(message, self._checksum))
        write_i32_be(w, i32(checksum))

    def around(
        self, before: bytes, part_bytes: i64, part_checksum: i64, behind: bytes
    ) -> tuple[bytes, bytes]:
        """Return the bytes of a frame before and after a long part of its message.

        `before` and `behind` are the rest of the message; `part_checksum` is the part's adler32.
        """
        head = self._head
        size: i64 = len(head) + len(before) + part_bytes + len(behind) + _CHECKSUM_BYTES
        first = BytesWriter()
        write_i32_be(first, i32(size))
        first.write(head)
        first.write(before)
        checksum: i64 = i64(zlib.adler32(before, self._checksum))
        checksum = joined_checksum(checksum, part_checksum, part_bytes)
        checksum = i64(zlib.adler32(behind, int(checksum)))
        last = BytesWriter()
        last.write(behind)
        write_i32_be(last, i32(checksum))
        return first.getvalue(), last.getvalue()


@final
class Package:
    """A protobuf package: the prefix of its messages' names, and writers of responses."""

    def __init__(self, prefix: bytes) -> None:
        """`prefix` ends with a dot, or is empty if there is no package."""
        self.prefix: Final = prefix
        self.common: Final = HareFrameWriter("basicCommonResponse", prefix)
        self.query: Final = HareFrameWriter("basicQueryResponse", prefix)
        self.push: Final = HareFrameWriter("basicConsumeResponse", prefix)


HARE_MQ: Final = Package(f"{PACKAGE}.".encode())


# -- reading ---------------------------------------------------------------------------------------


@final
class HareFrameReader(PieceReader):
    """Finds the frames of requests in pieces of input.

    Pass a piece to `feed`, then call `next` until it returns False.  When it returns True, `kind`
    is one of the requests above or `UNKNOWN`, `name` is the whole name, and the message is
    `data[start:end]`; or `kind` is `LONG_PUBLISH`, and `take_long` returns the publish.  While
    parsing is paused, pass the pieces to `hold` instead.  The first frame sets `package`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.package = HARE_MQ
        self._begun = False
        self.kind: i64 = UNKNOWN
        #: The name of the last frame and its kind, since most frames repeat the last name.
        self.name = b""
        self._name_kind: i64 = UNKNOWN
        self.start: i64 = 0
        self.end: i64 = 0
        #: An incomplete long publish, and a completed one.
        self._long: LongPublish | None = None
        self.long: LongPublish | None = None

    def next(self) -> bool:
        """Move to the next frame if it is complete, and return whether it is.

        Raises: FrameError (501) for impossible lengths, as soon as they have arrived; for a request
        that is too long, as soon as its name has arrived; for a wrong checksum; or for an invalid
        protobuf name.  Also as `LongPublish.take`.
        """
        if self._missing > 0:
            return False
        if self._long is not None:
            return self._take_long(self._long)
        data = self.data
        at = self.position
        there: i64 = i64(len(data)) - at
        if there < _LENGTH_BYTES:
            if there == 0:
                # Free the parsed input, since the connection may be idle for long.
                self.data = b""
                self.position = 0
            self.wait_for(_LENGTH_BYTES - there, there)
            return False
        length: i64 = i64(read_i32_be(data, at))
        _check_length(length)
        if there < _HEAD_BYTES:
            self.wait_for(_HEAD_BYTES - there, there)
            return False
        name_size: i64 = i64(read_i32_be(data, at + _LENGTH_BYTES))
        if name_size < 2 or name_size > length - _LENGTH_BYTES - _CHECKSUM_BYTES:
            raise FrameError(f"a frame of {length} bytes announces a name of {name_size} bytes")
        if name_size > HAREMQ_NAME_BYTES_MAX:
            raise FrameError(
                f"the name of a type has {name_size} bytes, more than {HAREMQ_NAME_BYTES_MAX}"
            )
        size = length + _LENGTH_BYTES
        if length > HAREMQ_REQUEST_BYTES_MAX:
            # Refuse a request that is too long before it is buffered.
            if there < _HEAD_BYTES + name_size:
                self.wait_for(_HEAD_BYTES + name_size - there, there)
                return False
            name = data[at + _HEAD_BYTES : at + _HEAD_BYTES + name_size - 1]
            if self._kind_of(name) != PUBLISH:
                raise FrameError(
                    f"a frame of {length} bytes of the type {name[:64]!r}; all but publishes have "
                    f"up to {HAREMQ_REQUEST_BYTES_MAX}"
                )
            # Even if the whole frame has arrived, since the result must not depend on its pieces.
            return self._begin_long(at, _HEAD_BYTES + name_size, size)
        if there < size:
            self.wait_for(size - there, there)
            return False
        self._take_whole(at, _HEAD_BYTES + name_size, size)
        return True

    def _take_whole(self, at: i64, head: i64, size: i64) -> None:
        """Check and parse a complete frame of `size` bytes.  Raises: FrameError (501)."""
        data = self.data
        end = at + size - _CHECKSUM_BYTES
        checksum: i64 = i64(zlib.adler32(data[at + _LENGTH_BYTES : end]))
        if checksum != i64(read_i32_be(data, end)) & 0xFFFF_FFFF:
            raise FrameError("a frame's checksum does not match its bytes")
        start = at + head
        if data[start - 1] != 0:
            raise FrameError("a frame's name does not end with a NUL")
        self.kind = self._kind_of(data[at + _HEAD_BYTES : start - 1])
        self.start = start
        self.end = end
        self.position = end + _CHECKSUM_BYTES

    def _kind_of(self, name: bytes) -> i64:
        """Return the kind of a request; the first request sets the package of the connection.

        Raises: FrameError (501) for an invalid name.
        """
        if name == self.name:
            return self._name_kind
        if not self._begun:
            self._begun = True
            prefix = name[: name.rfind(b".") + 1]
            if prefix != self.package.prefix:
                _check_name(name)
                self.package = Package(prefix)
        prefix = self.package.prefix
        kind: i64 = UNKNOWN
        if name.startswith(prefix) and prefix != _OTHERWISE:
            kind = _KINDS.get(name[len(prefix) :], UNKNOWN)
        if kind == UNKNOWN:
            _check_name(name)
        self.name = name
        self._name_kind = kind
        return kind

    def hold(self, piece: bytes) -> None:
        """Buffer input for a later `take_held`.

        The pieces are not joined yet, because each join would copy all earlier pieces.
        """
        self._gather(piece)
        self._missing = max(self._missing - len(piece), 0)

    def take_held(self) -> None:
        """Join the held input for `next`, if it completes a frame."""
        if self._gathered > 0 and self._missing == 0:
            self._join(b"", 0, 0)

    # -- long publishes, which may arrive in many pieces -------------------------------------------

    def _begin_long(self, at: i64, head: i64, size: i64) -> bool:
        """Start a long publish of `size` bytes, whose head has arrived."""
        data = self.data
        if data[at + head - 1] != 0:
            raise FrameError("a frame's name does not end with a NUL")
        checksum: i64 = i64(zlib.adler32(data[at + _LENGTH_BYTES : at + head]))
        self._long = long = LongPublish(head, size - head - _CHECKSUM_BYTES, checksum)
        self.position = at + head
        return self._take_long(long)

    def _take_long(self, long: LongPublish) -> bool:
        """Process the received part of a long publish; return whether it is complete."""
        data = self.data
        self.position = long.take(data, self.position)
        if not long.is_whole():
            self.data = b""
            self.position = 0
            return False
        self._long = None
        self.long = long
        self.kind = LONG_PUBLISH
        return True

    def take_long(self) -> LongPublish:
        """Return the completed long publish."""
        long = self.long
        assert long is not None
        self.long = None
        return long

    def held(self) -> int:
        """Return the number of buffered bytes of an incomplete frame."""
        long = self._long
        return super().held() + (0 if long is None else int(long.bytes))

    def memory(self) -> i64:
        """Return the memory of the buffered input."""
        long = self._long
        return super().memory() + (0 if long is None else long.bytes + long.bytes_ahead)

    def forget(self) -> None:
        """Free all input, which will not be parsed."""
        super().forget()
        self._long = None
        self.long = None


def _check_name(name: bytes) -> None:
    """Check a protobuf name.  Raises: FrameError (501)."""
    if not name.replace(b".", b"").replace(b"_", b"").isalnum():
        raise FrameError(f"a frame has the name {name[:64]!r}, which no protobuf message can have")


def _check_length(length: i64) -> None:
    """Check the announced length of a frame.  Raises: FrameError (501)."""
    if length < HAREMQ_FRAME_BYTES_MIN or length > HAREMQ_FRAME_BYTES_MAX:
        raise FrameError(
            f"a frame announces {length} bytes, not {HAREMQ_FRAME_BYTES_MIN} to "
            f"{HAREMQ_FRAME_BYTES_MAX}"
        )
