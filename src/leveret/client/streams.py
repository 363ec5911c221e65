"""The stream arguments of `Channel.consume`, for both shells.

RabbitMQ understands `x-stream-offset` as well, and the filter values from 3.13 on; the rest is
specific to Leveret.  Values are not checked here, because the broker refuses invalid values and
malformed patterns.  RabbitMQ also refuses negative offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.wire.tables import Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


def stream_arguments(
    start: int | str | datetime | Timestamp = "next",
    *,
    name: str = "",
    filter_values: Sequence[str] = (),
    match_unfiltered: bool = False,
    routing_keys: Sequence[str] = (),
    headers: dict[str, object] | None = None,
) -> dict[str, object]:
    """Return the arguments of a consumer that reads a stream or a super stream.

    `start` is `first`, `last`, `next`, an age such as `1h`, an offset (negative: counted from the
    end), or a time; with a `name` it applies only to the first start.  The filters are
    `filter_values` (with `match_unfiltered` also messages without a filter value),
    `routing_keys` (patterns) and `headers` (as in a binding, with `x-match`).  A message must match
    all of them; an empty filter matches everything.

    Raises: ValueError for a time without a time zone.
    """
    arguments: dict[str, object] = {"x-stream-offset": _start(start)}
    if name:
        arguments["x-stream-consumer"] = name
    if filter_values:
        arguments["x-stream-filter"] = list(filter_values)
        arguments["x-stream-match-unfiltered"] = match_unfiltered
    if routing_keys:
        arguments["x-stream-filter-routing-key"] = list(routing_keys)
    if headers:
        arguments["x-stream-filter-headers"] = headers
    return arguments


def _start(start: int | str | datetime | Timestamp) -> object:
    if isinstance(start, int | str | Timestamp):
        return start
    if start.tzinfo is None:
        raise ValueError("the start time of a stream needs a time zone: datetime.now(UTC)")
    # AMQP times are whole seconds; rounding down may add messages but loses none.
    return Timestamp(int(start.timestamp() // 1))
