"""Fair order of input: connections with much input take turns, user by user.

A connection handles a slice of its input at a time.  A connection with more input waits here for
its next turn, and so do all others once the share of input is used up.  Users take turns, and so do
the connections of one user, so that opening more connections gains a user nothing.  A user's turn
is one slice in total, however many connections share it: ten connections with small requests are
all served in it.

Invariants: a connection waits at most once; the order is first in, first out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mypy_extensions import i64

if TYPE_CHECKING:
    from leveret.broker.scheduler.link import Link


class Turns:
    """The connections that wait for their turn."""

    def __init__(self) -> None:
        #: By user, in the order of the users' turns.
        self._by_user: dict[str, deque[Link]] = {}
        #: The user whose turn it is, and that user's connections.
        self._user = ""
        self._taking: deque[Link] = deque()
        self._count: i64 = 0

    def add(self, link: Link) -> None:
        """Add a connection after the waiting ones."""
        waiting = self._by_user.get(link.user)
        if waiting is None:
            self._by_user[link.user] = waiting = deque()
        waiting.append(link)
        self._count += 1

    def any(self) -> bool:
        """Return whether any connection waits."""
        return self._count > 0

    def begin_user(self) -> i64:
        """Begin the next user's turn; return how many connections of that user wait."""
        self._user = next(iter(self._by_user))
        self._taking = self._by_user[self._user]
        return len(self._taking)

    def next(self) -> Link:
        """Remove and return the next connection of this user; there must be one."""
        self._count -= 1
        return self._taking.popleft()

    def end_user(self) -> None:
        """End this user's turn; connections that still wait come after all other users."""
        del self._by_user[self._user]
        if self._taking:
            self._by_user[self._user] = self._taking
