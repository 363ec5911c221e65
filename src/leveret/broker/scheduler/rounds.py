"""Whose input is handled next: connections that ask for much take turns, user by user.

A connection has a slice of each round (`costs.SLICE`); one that has more input waits here for its
next slice, and so does every other one once the share of all input is used up.  Users take turns,
and so do the connections of one user, so no number of connections gives one user the share of
others.  A user's turn is as long as a slice, whoever takes it: ten connections that ask for little
have all been served when one that asks for much has had a slice.

Invariants: a connection waits at most once; who comes first is served first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mypy_extensions import i64

if TYPE_CHECKING:
    from leveret.broker.scheduler.link import Link


class Rounds:
    """The connections that wait for their turn."""

    def __init__(self) -> None:
        #: By user, the one whose turn it is first.
        self._by_user: dict[str, deque[Link]] = {}
        #: The user whose turn it is, and his connections.
        self._user = ""
        self._taking: deque[Link] = deque()
        self._count: i64 = 0

    def add(self, link: Link) -> None:
        """Give a connection a turn when those before it have had theirs."""
        waiting = self._by_user.get(link.user)
        if waiting is None:
            self._by_user[link.user] = waiting = deque()
        waiting.append(link)
        self._count += 1

    def any(self) -> bool:
        """Return whether anybody waits."""
        return self._count > 0

    def begin_user(self) -> i64:
        """Begin the turn of the user who is first, one must wait; return how many of his wait."""
        self._user = next(iter(self._by_user))
        self._taking = self._by_user[self._user]
        return len(self._taking)

    def next(self) -> Link:
        """Take out the connection of this user whose turn it is; there must be one."""
        self._count -= 1
        return self._taking.popleft()

    def end_user(self) -> None:
        """End the turn of this user; those of his who wait have theirs after all other users."""
        del self._by_user[self._user]
        if self._taking:
            self._by_user[self._user] = self._taking
