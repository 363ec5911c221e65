"""Checks the body of a push in pieces, computes its checksum, and converts invalid UTF-8.

A body may be as long as 64 MiB.  Checking it takes 0.1 s, or five times as long if it is not UTF-8.
A valid body is not copied.
"""

from __future__ import annotations

import codecs
import zlib
from typing import Final, final

from mypy_extensions import i64

from leveret.limits import INPUT_BYTES_PER_COST, TABLE_BYTES_PER_COST

#: The size of the pieces.
_PIECE_BYTES: Final = 16_384

#: The cost of ASCII text, most of which is that of the checksum.
_ASCII_BYTES_PER_STEP: Final = 1024


@final
class BodyText:
    """One body; after `advance` has been called until `is_over`, `parts` returns the text."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        #: The number of processed bytes, and the start of a character that the last piece cut off.
        self._at: i64 = 0
        self._cut = b""
        #: The text in pieces, once a part of it was converted.
        self._converted: list[bytes | memoryview] = []
        #: True if a part of the body is not UTF-8; the size of the text so far, the part of it that
        #: uses additional memory, and its adler32.
        self.garbled = False
        self.bytes: i64 = 0
        self.bytes_own: i64 = 0
        self.checksum: i64 = 1

    def is_over(self) -> bool:
        """Return whether the whole body is processed."""
        return self._at >= len(self._body)

    def advance(self) -> i64:
        """Process the next piece; return its cost in steps."""
        body = self._body
        begin = self._at
        end: i64 = min(begin + _PIECE_BYTES, i64(len(body)))
        piece = body[begin:end]
        self._at = end
        steps: i64 = (end - begin) // _ASCII_BYTES_PER_STEP
        if self._cut or not piece.isascii():
            steps += (end - begin) // INPUT_BYTES_PER_COST
            text = self._cut + piece
            last = end == len(body)
            try:
                used: i64 = codecs.utf_8_decode(text, "strict", last)[1]
                piece = text[:used]
            except UnicodeDecodeError:
                replaced, used = codecs.utf_8_decode(text, "replace", last)
                piece = replaced.encode()
                steps += (end - begin) // TABLE_BYTES_PER_COST
                if not self.garbled:
                    self.garbled = True
                    if self.bytes > 0:
                        self._converted.append(memoryview(body)[: self.bytes])
            self._cut = text[used:]
        self.checksum = i64(zlib.adler32(piece, int(self.checksum)))
        self.bytes += len(piece)
        if self.garbled:
            self._converted.append(piece)
            self.bytes_own += len(piece)
        return 1 + steps

    def parts(self) -> list[bytes | memoryview]:
        """Return the text in parts."""
        return self._converted if self.garbled else [self._body]
