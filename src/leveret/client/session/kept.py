"""Publishes that are kept until they are confirmed, so that another connection can send them again.

What is kept are the pieces of output that were sent, with all that was in them: nothing is made for
a single publish.  A piece is forgotten when all of its publishes are confirmed.  Only who sends
them again reads them.

A `Share` is what one channel has in a piece: the sequences `first` to `last`, which are its last
publishes there (those before were not to be confirmed).

Invariants: pieces are in the order in which they were written; `size` is that of all pieces.
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


class Share:
    """The publishes of one channel in a piece; `number` is what the channel had then."""

    __slots__ = ("_is_released", "_piece", "_unsettled", "first", "last", "number")

    def __init__(self, piece: Piece, number: int, first: int, last: int) -> None:
        self.number = number
        self.first = first
        self.last = last
        self._piece = piece
        self._unsettled = last - first + 1
        self._is_released = False
        piece.shares.append(self)

    def settled_early(self) -> None:
        """Take that one of them was settled before those below it."""
        self._unsettled -= 1
        if self._unsettled == 0:
            self.release()

    def release(self) -> None:
        """Take that all of them are settled, or that nobody waits for them."""
        if not self._is_released:
            self._is_released = True
            self._piece.released()


class Piece:
    """Bytes that were sent, with publishes that are to be confirmed."""

    __slots__ = ("_kept", "_released", "data", "shares")

    def __init__(self, kept: Kept, data: bytes) -> None:
        self.data = data
        self.shares: list[Share] = []
        self._kept = kept
        self._released = 0

    def released(self) -> None:
        """Take that one of the shares needs no bytes any more."""
        self._released += 1
        if self._released == len(self.shares):
            self._kept.forget(self)

    def publishes(self) -> Iterator[tuple[Share, int, KeptPublish]]:
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


class Kept:
    """What one connection keeps, over all connections that it has had."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: dict[Piece, None] = {}

    def keep(self, data: bytes) -> Piece:
        """Keep a piece of output; its shares are to follow."""
        piece = Piece(self, data)
        self._pieces[piece] = None
        self.size += len(data)
        return piece

    def forget(self, piece: Piece) -> None:
        """Forget a piece, once."""
        if piece in self._pieces:
            del self._pieces[piece]
            self.size -= len(piece.data)

    def take(self) -> list[Piece]:
        """Return all pieces in their order, and forget them."""
        pieces = list(self._pieces)
        self._pieces.clear()
        self.size = 0
        return pieces


def _publishes(data: bytes) -> Iterator[tuple[int, KeptPublish]]:
    """Yield the publishes in whole frames of this client, each with its channel."""
    reader = FrameReader(0)
    reader.feed(data)
    #: What was announced on a channel, until its body is whole: frames of channels do not mix, as
    #: a publish is written at once.
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
