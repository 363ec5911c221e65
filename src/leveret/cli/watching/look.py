"""A snapshot of a broker from its HTTP API: the overview, the node's figures, the busiest queues.

A broker samples its counters while clients request rates.  Until it has samples, `rate` uses the
growth since the previous snapshot.  A broker of another version may omit fields; a missing number
counts as 0.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from leveret.cli import exits
from leveret.cli.contexts.remote import Remote
from leveret.cli.management_client import get_json
from leveret.cli.printing.rows import Row, field

#: The sort orders of `leveret top`, and the API's fields for them.
SORTS: Final = {
    "messages": "messages",
    "publish": "message_stats.publish_details.rate",
    "deliver": "message_stats.deliver_get_details.rate",
    "ack": "message_stats.ack_details.rate",
    "consumers": "consumers",
    "name": "name",
}

#: The requested fields of a queue.
_QUEUE_FIELDS: Final = (
    "vhost,name,type,messages_ready,messages_unacknowledged,consumers,message_stats"
)


@dataclass(frozen=True)
class Snapshot:
    """The answers of a broker at the time `at`, in seconds of a monotonic clock.

    `node` is None if the user may not read the node's figures.  `queues` is one page of all queues.
    """

    at: float
    overview: Row
    node: Row | None
    queues: tuple[Row, ...] = ()
    #: The duration of the requests.
    seconds: float = 0.0


def take_look(api: Path | Remote) -> Snapshot:
    """Request the broker's overview and its node's figures.  Raises: Failure."""
    began = time.monotonic()
    overview = _row(get_json(api, "/api/overview"))
    node = _node(api)
    now = time.monotonic()
    return Snapshot(now, overview, node, (), now - began)


def look_at_queues(api: Path | Remote, vhost: str, sort: str, count: int) -> Snapshot:
    """Request a snapshot with the first `count` queues in an order of `SORTS`.  Raises: Failure."""
    began = time.monotonic()
    look = take_look(api)
    query = {"page": 1, "page_size": count, "columns": _QUEUE_FIELDS, "sort": SORTS[sort]}
    if sort != "name":
        query["sort_reverse"] = "true"
    where = f"/{quote(vhost, safe='')}" if vhost else ""
    page = _row(get_json(api, f"/api/queues{where}?{urlencode(query)}"))
    items = page.get("items")
    rows = items if isinstance(items, list) else []
    queues = tuple(one for one in rows if isinstance(one, Mapping))
    now = time.monotonic()
    return Snapshot(look.at, look.overview, look.node, queues, now - began)


def _node(api: Path | Remote) -> Row | None:
    """Return the node's figures, or None if the user may not read them.  Raises: Failure."""
    try:
        found = get_json(api, "/api/nodes")
    except exits.Failure as failure:
        # The login is valid, since the overview was answered.
        if failure.code == exits.NO_PERMISSION:
            return None
        raise
    return _row(found[0]) if isinstance(found, list) and found else None


def _row(found: object) -> Row:
    """Return the answer if it is a JSON object.  Raises: Failure for any other type."""
    if not isinstance(found, Mapping):
        text = "the server is not the API of a broker: its answer is not a JSON object"
        raise exits.Failure(text, exits.PROTOCOL)
    return found


def number(row: Row | None, name: str) -> float:
    """Return a number in a row, or 0 if it is missing."""
    found = None if row is None else field(row, name)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else 0


def flag(row: Row | None, name: str) -> bool:
    """Return whether a field of a row is true."""
    return row is not None and field(row, name) is True


def grown(now: Row | None, before: Row | None, name: str, seconds: float) -> float:
    """Return the growth of a count per second, or 0 if there is no earlier snapshot."""
    if before is None or seconds <= 0:
        return 0.0
    return max(0.0, (number(now, name) - number(before, name)) / seconds)


def rate(now: Row | None, before: Row | None, name: str, seconds: float) -> float:
    """Return the broker's sampled rate, or the growth since the previous snapshot."""
    return number(now, f"{name}_details.rate") or grown(now, before, name, seconds)
