"""The arguments of queues that retry, and of consumers that read streams, for both shells.

RabbitMQ understands `x-stream-offset` as well, and the filter values from 3.13 on; the rest of the
stream arguments is specific to Leveret.  Their values are not checked here, because the broker
refuses invalid values and malformed patterns.  RabbitMQ also refuses negative offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.client.names import checked
from leveret.client.options import milliseconds
from leveret.wire.tables import Timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta


def retry_arguments(
    attempts: int = 5,
    *,
    delay: float | timedelta = 1,
    delay_max: float | timedelta = 60,
    failed_queue: str = "",
) -> dict[str, object]:
    """Return the arguments of a queue that delivers a rejected message again, after a delay.

    Pass them to `Channel.queue_declare`.

    The broker waits `delay` after the first failure, twice that after the second, three times that
    after the third and so on, up to `delay_max`; times are in seconds.  After `attempts`
    deliveries it moves the message to `failed_queue`, or drops it.  A failure is a `reject` with
    `requeue`, as from `message.process(requeue=True)`, or the end of the consumer's channel.

    Leveret does this for classic and quorum queues, RabbitMQ for quorum queues from 4.3 on; there,
    add `"x-queue-type": "quorum"`.

    Raises: ValueError for fewer attempts than 1 or a negative time; TypeError.
    """
    if attempts < 1:
        raise ValueError(f"attempts is {attempts}: it must be at least 1")
    arguments: dict[str, object] = {
        "x-delivery-limit": attempts - 1,
        "x-delayed-retry-type": "failed",
        "x-delayed-retry-min": milliseconds("delay", delay),
        "x-delayed-retry-max": milliseconds("delay_max", delay_max),
    }
    if failed_queue:
        arguments["x-dead-letter-exchange"] = ""
        arguments["x-dead-letter-routing-key"] = checked("failed_queue", failed_queue)
    return arguments


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

    Pass them to `Channel.consume`.  `start` is `first`, `last`, `next`, an age such as `1h`, an
    offset (negative: counted from the end), or a time.  A consumer with a `name` begins at the
    first message that was not acked or rejected under it; `start` applies only the first time.

    The filters are `filter_values` (with `match_unfiltered` also messages without a filter value),
    `routing_keys` (patterns) and `headers` (as in a binding, with `x-match`).  A message must match
    all of them; an empty filter matches everything.  RabbitMQ knows `start` and the filter values
    only.

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
