"""One look at a broker through its HTTP API: its totals, its node, and its busiest queues.

Rates are the broker's own, which it samples while somebody asks; until it has any they are what
grew since the look before.  An answer may come from a broker of another version: what it does not
say is left out, and counts as 0.
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

#: What `leveret top` can be sorted by, as the API's fields.
SORTS: Final = {
    "messages": "messages",
    "publish": "message_stats.publish_details.rate",
    "deliver": "message_stats.deliver_get_details.rate",
    "ack": "message_stats.ack_details.rate",
    "consumers": "consumers",
    "name": "name",
}

#: The fields of a queue that are asked for.
_QUEUE_FIELDS: Final = (
    "vhost,name,type,messages_ready,messages_unacknowledged,consumers,message_stats"
)


@dataclass(frozen=True)
class Look:
    """What a broker said at one time (seconds of a monotonic clock).

    `node` is None for a user who may not see it, and `queues` are a page of all.
    """

    at: float
    overview: Row
    node: Row | None
    queues: tuple[Row, ...] = ()
    #: How long the answers took.
    seconds: float = 0.0


def take_look(api: Path | Remote) -> Look:
    """Ask for totals and node.  Raises: Failure."""
    began = time.monotonic()
    overview = _row(get_json(api, "/api/overview"))
    node = _node(api)
    now = time.monotonic()
    return Look(now, overview, node, (), now - began)


def look_at_queues(api: Path | Remote, vhost: str, sort: str, count: int) -> Look:
    """Ask for the same and for the first `count` queues by a name of `SORTS`.  Raises: Failure."""
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
    return Look(look.at, look.overview, look.node, queues, now - began)


def _node(api: Path | Remote) -> Row | None:
    """Return the broker's node; None where who asks may not see it.  Raises: Failure."""
    try:
        found = get_json(api, "/api/nodes")
    except exits.Failure as failure:
        # That he is known, the overview has shown.
        if failure.code == exits.NO_PERMISSION:
            return None
        raise
    return _row(found[0]) if isinstance(found, list) and found else None


def _row(found: object) -> Row:
    """Return an object of the API.  Raises: Failure for anything else."""
    if not isinstance(found, Mapping):
        text = "what answers is no broker's API: an object was expected"
        raise exits.Failure(text, exits.PROTOCOL)
    return found


def number(row: Row | None, name: str) -> float:
    """Return a number that a row has; 0 where it has none."""
    found = None if row is None else field(row, name)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else 0


def flag(row: Row | None, name: str) -> bool:
    """Tell whether a row says that something is so."""
    return row is not None and field(row, name) is True


def grown(now: Row | None, before: Row | None, name: str, seconds: float) -> float:
    """Return how much a count grew each second; 0 where it was not looked at before."""
    if before is None or seconds <= 0:
        return 0.0
    return max(0.0, (number(now, name) - number(before, name)) / seconds)


def rate(now: Row | None, before: Row | None, name: str, seconds: float) -> float:
    """Return a rate as the broker samples it, or as the counts grew since the look before."""
    return number(now, f"{name}_details.rate") or grown(now, before, name, seconds)
