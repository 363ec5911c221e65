"""Limits the memory of all HTTP requests that are being read or answered (the share).

A user may have 64 requests open, with large bodies or large answers.  A body is booked by its
announced length before it is read.  The data of an answer (message bodies, the rows of a sorted
list) is booked as it is collected.  Small requests are booked too, but never refused.

Invariants: large requests together use more than the share only if there is just one of them, and
one user's large requests use more than half of the share only if the user has just one; every
booking is released.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from leveret.broker.scheduler.accounts import Accounts

#: A request of up to this size is never refused for the memory of requests.
HTTP_BODY_SMALL_BYTES: Final = 65_536


class RequestShare:
    """The memory that the requests of one broker may use."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts: Final = accounts
        #: The bytes of large requests, by user.
        self._large: Final[Counter[str]] = Counter()

    def take(self, user: str, size: int, held: int = 0) -> bool:
        """Book bytes for a request that has booked `held`; return False beyond the limit."""
        whole, before = held + size, _large_part(held)
        if whole > HTTP_BODY_SMALL_BYTES:
            most = int(self._accounts.request_bytes_max)
            if most >= 0 and self._is_over(user, whole, before, most):
                return False
            self._large[user] += whole - before
        self._accounts.request_bytes += size
        return True

    def _is_over(self, user: str, whole: int, before: int, most: int) -> bool:
        own, all_large = self._large[user] - before, self._large.total() - before
        return (all_large > 0 and all_large + whole > most) or (own > 0 and own + whole > most // 2)

    def give_back(self, user: str, size: int) -> None:
        """Release the `size` bytes that a request has booked."""
        self._accounts.request_bytes -= size
        if size > HTTP_BODY_SMALL_BYTES:
            self._large[user] -= size
            if self._large[user] == 0:
                del self._large[user]


def _large_part(held: int) -> int:
    return held if held > HTTP_BODY_SMALL_BYTES else 0


class Booking:
    """The memory that one request has booked."""

    def __init__(self, share: RequestShare, user: str) -> None:
        self._share: Final = share
        self._user: Final = user
        self.size = 0

    def add(self, size: int) -> bool:
        """Book `size` more bytes; beyond the limit, book nothing and return False."""
        if not self._share.take(self._user, size, self.size):
            return False
        self.size += size
        return True

    def end(self) -> None:
        """Release everything."""
        self._share.give_back(self._user, self.size)
        self.size = 0
