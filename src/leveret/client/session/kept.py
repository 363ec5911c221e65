"""Publishes stored until they are confirmed, so that another connection can repeat them.

Whole pieces of sent output are stored, without an object for each publish.  A piece is freed when
all of its publishes are settled, and decoded only to repeat them.

A `ChannelPublishes` is the share of one channel in a piece: the sequences `first` to `last`, which
are the channel's last publishes in it.  Earlier publishes were not in confirm mode.

Invariants: pieces are in the order of writing; `size` is the total size of all pieces.  This module
is compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leveret.wire.frames import (
    CONTENT_HEAD_BYTES,
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_METHOD,
    FrameReader,
)
from leveret.wire.methods import decode_method
from leveret.wire.methods.basic import BasicPublish

if TYPE_CHECKING:
    from collections.abc import Iterator


class KeptPublish(NamedTuple):
    """A publish as it was sent."""

    method: BasicPublish
    properties: bytes
    body: bytes


class ChannelPublishes:
    """The publishes of one channel in a piece, sent when the channel's number was `number`."""

    __slots__ = ("_is_released", "_piece", "_unsettled", "first", "last", "number")

    def __init__(self, piece: SentPiece, number: int, first: int, last: int) -> None:
        self.number = number
        self.first = first
        self.last = last
        self._piece = piece
        self._unsettled = last - first + 1
        self._is_released = False
        piece.shares.append(self)

    def settled_early(self) -> None:
        """Count a publish that settled before an earlier publish."""
        self._unsettled -= 1
        if self._unsettled == 0:
            self.release()

    def release(self) -> None:
        """Release the share, because all its publishes are settled or abandoned."""
        if not self._is_released:
            self._is_released = True
            self._piece.released()


class SentPiece:
    """Sent bytes that contain publishes in confirm mode."""

    __slots__ = ("_kept", "_released", "data", "shares")

    def __init__(self, kept: KeptPublishes, data: bytes) -> None:
        self.data = data
        self.shares: list[ChannelPublishes] = []
        self._kept = kept
        self._released = 0

    def released(self) -> None:
        """Count a released share; free the piece after the last share."""
        self._released += 1
        if self._released == len(self.shares):
            self._kept.forget(self)

    def publishes(self) -> Iterator[tuple[ChannelPublishes, int, KeptPublish]]:
        """Yield the publishes of all shares, in the order of their bytes, with their sequences."""
        found = list(_publishes(self.data))
        shares = {share.number: share for share in self.shares}
        left = dict.fromkeys(shares, 0)
        for number, _ in found:
            if number in left:
                left[number] += 1
        for number, publish in found:
            if number not in shares:
                continue
            left[number] -= 1
            sequence = shares[number].last - left[number]
            if sequence >= shares[number].first:
                yield shares[number], sequence, publish


class KeptPublishes:
    """The stored publishes of one connection, across all reconnects."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: dict[SentPiece, None] = {}

    def keep(self, data: bytes) -> SentPiece:
        """Store a piece of output; its shares are added later."""
        piece = SentPiece(self, data)
        self._pieces[piece] = None
        self.size += len(data)
        return piece

    def forget(self, piece: SentPiece) -> None:
        """Free a piece, once."""
        if piece in self._pieces:
            del self._pieces[piece]
            self.size -= len(piece.data)

    def take(self) -> list[SentPiece]:
        """Return and clear all pieces, in the order of writing."""
        pieces = list(self._pieces)
        self._pieces.clear()
        self.size = 0
        return pieces


def _publishes(data: bytes) -> Iterator[tuple[int, KeptPublish]]:
    """Yield the publishes in whole frames of this client, each with its channel."""
    reader = FrameReader(0)
    reader.feed(data)
    #: The current publish until its body is complete.  Frames of different channels are not
    #: interleaved, because each publish is written at once.
    method: BasicPublish | None = None
    properties = b""
    missing = 0
    body: list[bytes] = []
    while reader.next():
        data, start, end = reader.data, reader.start, reader.end
        if reader.kind == FRAME_METHOD:
            found = decode_method(data, start, end)
            method = found if isinstance(found, BasicPublish) else None
            continue
        if method is None:
            continue
        if reader.kind == FRAME_HEADER:
            properties = data[start + CONTENT_HEAD_BYTES : end]
            missing = int.from_bytes(data[start + 4 : start + CONTENT_HEAD_BYTES])
        elif reader.kind == FRAME_BODY:
            body.append(data[start:end])
            missing -= end - start
        if missing == 0:
            yield reader.channel, KeptPublish(method, properties, b"".join(body))
            method = None
            body.clear()
