"""Finds the TLS records in a peer's input before OpenSSL reads them, and counts empty ones.

    type (1 byte) | version (2) | length (2) | `length` bytes          (RFC 8446, section 5.1)

A record may have no content: it may be a KeyUpdate, an alert, part of a handshake, or empty.
OpenSSL processes any number of such records silently, so they must be limited before that.  Input
is passed to OpenSSL a few records at a time, and a peer may send only a few records without
content.
"""

from __future__ import annotations

from typing import Final

from leveret.limits import TLS_EMPTY_RECORDS_MAX

#: The maximum size of one read or write of OpenSSL, whose buffers keep the size of the largest one.
TLS_PIECE_BYTES: Final = 32_768


_HEAD_BYTES: Final = 5


class Records:
    """The records in the input of one peer."""

    def __init__(self) -> None:
        #: The number of complete records.
        self.ended = 0
        #: The head of the next record, as far as it was received.
        self._head = b""
        #: The number of missing bytes of the current record.
        self._left = 0
        #: The count of records without content, which decreases with time, and the time at which it
        #: was set (seconds).
        self._empty = 0.0
        self._counted_at = 0.0

    def cut(self, data: bytes, at: int) -> int:
        """Return the end of the next piece of input for OpenSSL, which begins at `at`."""
        size = len(data)
        end = min(size, at + TLS_PIECE_BYTES)
        # One record beyond the limit on empty records is enough to drop the peer.
        most = TLS_EMPTY_RECORDS_MAX + 1 - int(self._empty)
        head, left, ended = self._head, self._left, 0
        while at < end and ended < most:
            if left == 0:
                if head or at + _HEAD_BYTES > size:
                    missing = _HEAD_BYTES - len(head)
                    head += data[at : at + missing]
                    if len(head) < _HEAD_BYTES:
                        at = size
                        break
                    left = head[3] << 8 | head[4]
                    head = b""
                    at += missing
                else:
                    left = data[at + 3] << 8 | data[at + 4]
                    at += _HEAD_BYTES
            if at + left <= end:
                at += left
                left = 0
                ended += 1
            elif at < end:
                left -= end - at
                at = end
        self._head, self._left = head, left
        self.ended += ended
        return at

    def are_empty(self, count: int, now: float) -> bool:
        """Count records without content; return whether the peer has sent too many.

        A peer may send `TLS_EMPTY_RECORDS_MAX` at once, and one more each second.  `now` is a time
        in seconds.
        """
        self._empty = max(0.0, self._empty - (now - self._counted_at)) + count
        self._counted_at = now
        return self._empty > TLS_EMPTY_RECORDS_MAX
