"""Closing many connections for the operator."""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import i64

from leveret.broker.scheduler.costs import CONNECTION_CLOSED, VISITED_PER_COST
from leveret.broker.scheduler.link import Link


def close_links(links: list[Link], text: str, *, user: str = "", vhost: str = "") -> Iterator[int]:
    """Close those of `links` that belong to `user`, or are in `vhost`; their clients get `text`.

    Closing a connection takes some tens of microseconds, not counting the objects it held, which a
    separate task releases.  Connections opened meanwhile stay open.
    """
    # The next one is last.
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
