"""The memory of the bodies of requests: one share for all that are read and answered at a time.

Who has logged in may send a body, and 64 requests of a user are answered at once: with the largest
bodies they would take over a gigabyte.  A body is booked by the length that it is announced with,
from before it is read to the end of the answer.  Small ones are booked and never refused.

Invariants: beyond the share there is at most one large body, and beyond half of it at most one of
each user; what was booked is booked out.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from leveret.broker.core.accounts import Accounts
from leveret.limits import HTTP_BODY_SMALL_BYTES


class BodyShare:
    """The share of one broker."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts: Final = accounts
        #: The bytes of large bodies, by user.
        self._large: Final[Counter[str]] = Counter()

    def take(self, user: str, size: int) -> bool:
        """Book a body of a user; return False, and book nothing, where it has no room now."""
        if size > HTTP_BODY_SMALL_BYTES:
            most = int(self._accounts.request_bytes_max)
            if most >= 0 and self._is_over(user, size, most):
                return False
            self._large[user] += size
        self._accounts.request_bytes += size
        return True

    def _is_over(self, user: str, size: int, most: int) -> bool:
        own, all_large = self._large[user], self._large.total()
        return (all_large > 0 and all_large + size > most) or (own > 0 and own + size > most // 2)

    def give_back(self, user: str, size: int) -> None:
        """Book out a body that was booked."""
        self._accounts.request_bytes -= size
        if size > HTTP_BODY_SMALL_BYTES:
            self._large[user] -= size
            if self._large[user] == 0:
                del self._large[user]
