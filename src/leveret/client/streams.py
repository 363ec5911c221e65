"""What a consumer says of a stream, as the arguments of `Channel.consume`, for both shells.

`x-stream-offset` is understood by RabbitMQ too, and from 3.13 on the filter values; the rest by
Leveret.  Not here: what the broker refuses (a negative number to RabbitMQ, a pattern that is none).
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
    """Return the arguments of a consumer that reads a stream, or a super stream.

    `start` is `first`, `last`, `next`, an age such as `1h`, an offset, below 0 one from the end, or
    a time; with a `name` it counts the first time only.  What is asked for by `filter_values`
    (with `match_unfiltered` also what has none), `routing_keys` (patterns) and `headers` (as of a
    binding, with `x-match`) must hold together; what is empty asks for nothing.

    Raises: ValueError for a time without its zone.
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
        raise ValueError("the time of a stream's start needs a zone: datetime.now(UTC)")
    # AMQP's times are whole seconds: rather one message too many than one too few.
    return Timestamp(int(start.timestamp() // 1))
