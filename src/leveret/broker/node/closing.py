"""Closing many connections for the operator."""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import i64

from leveret.broker.scheduler.costs import CONNECTION_CLOSED, VISITED_PER_COST
from leveret.broker.scheduler.link import Link


def close_links(links: list[Link], text: str, *, user: str = "", vhost: str = "") -> Iterator[int]:
    """Close those of `links` that belong to `user`, or are in `vhost`; their clients get `text`.

    The end of a connection takes some tens of microseconds beside what it held, which is released
    by a task of its own.  What is opened meanwhile stays.
    """
    # The next one last.
    left = links[::-1]
    passed: i64 = 0
    while left:
        link = left.pop()
        if (user and link.user == user) or (vhost and link.vhost_name == vhost):
            link.force(text)
            yield CONNECTION_CLOSED
        else:
            passed += 1
            yield 1 if passed % VISITED_PER_COST == 0 else 0
