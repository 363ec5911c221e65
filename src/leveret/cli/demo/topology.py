"""The demo's topology: a topic exchange, work queues bound by patterns, and a stream of all lines.

The expected lines of each queue are computed with a regular expression, not with the broker's
matcher, so that the demo detects a wrong route.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from leveret.cli.demo.lines import DemoMessage
from leveret.client.blocking import Channel

EXCHANGE: Final = "logs"
STREAM: Final = "logs.all"


@dataclass(frozen=True, slots=True)
class WorkQueue:
    """A queue and its binding keys."""

    name: str
    binding_keys: tuple[str, ...]

    def takes(self, routing_key: str) -> bool:
        """Return whether a message with this routing key belongs in the queue."""
        return any(_pattern(key).fullmatch(routing_key) for key in self.binding_keys)


def work_queues(sources: tuple[str, ...]) -> tuple[WorkQueue, ...]:
    """Return the queues: by severity, by source (with two overlapping patterns), and for all."""
    first = sources[0]
    return (
        WorkQueue("alerts", ("*.error", "*.fatal")),
        WorkQueue("warnings", ("*.warning",)),
        WorkQueue("unrated", ("*.unknown",)),
        WorkQueue(f"only-{first}", (f"{first}.#", f"{first}.*")),
        WorkQueue("audit", ("#",)),
    )


def declare(channel: Channel, queues: tuple[WorkQueue, ...]) -> None:
    """Declare the exchange, the stream and the queues as durable, to survive the crash."""
    channel.exchange_declare(EXCHANGE, "topic", durable=True)
    channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_bind(STREAM, EXCHANGE, "#")
    for queue in queues:
        channel.queue_declare(queue.name, durable=True)
        for key in queue.binding_keys:
            channel.queue_bind(queue.name, EXCHANGE, key)


def expected(queue: WorkQueue, lines: tuple[DemoMessage, ...]) -> dict[str, DemoMessage]:
    """Return the lines that a queue should receive, by message id."""
    keys = {line.routing_key for line in lines}
    taken = {key for key in keys if queue.takes(key)}
    return {line.message_id: line for line in lines if line.routing_key in taken}


def _pattern(binding_key: str) -> re.Pattern[str]:
    """Return the regular expression for a topic pattern, in which `#` can only be the last word."""
    if binding_key == "#":
        return re.compile(r".*")
    text = re.escape(binding_key).replace(r"\*", r"[^.]+")
    return re.compile(re.sub(r"\\\.\\#$", r"(\\..*)?", text))
