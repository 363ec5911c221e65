"""Rows for a sink to write, and the resulting messages of a queue."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from leveret.client import Message
from leveret.client.blocking import Channel

#: The time limit for an expected message, and the time in which no other one may arrive.
SECONDS = 60.0
QUIET_SECONDS = 0.5

HEADERS = pa.map_(pa.string(), pa.string())


def numbers(first: int, end: int, **columns: Any) -> pa.RecordBatch:
    """Return rows with numbers as bodies."""
    made = pa.array(texts(first, end), pa.binary())
    return pa.RecordBatch.from_pydict({"body": made, **columns})


def texts(first: int, end: int) -> list[bytes]:
    """Return the bodies of such rows."""
    return [f"{n}".encode() for n in range(first, end)]


def ids(*values: int | None) -> pa.RecordBatch:
    """Return rows with their publishing ids as bodies."""
    made = pa.array([f"{value}".encode() for value in values])
    return pa.RecordBatch.from_pydict({"body": made, "publishing_id": pa.array(values, pa.int64())})


def drain(channel: Channel, queue: str) -> list[Message]:
    """Take and return the messages of a queue."""
    found = []
    while (message := channel.get(queue, no_ack=True)) is not None:
        found.append(message)
    return found


def bodies(channel: Channel, queue: str) -> list[bytes]:
    """Take the messages of a queue, and return their bodies."""
    return [message.body for message in drain(channel, queue)]


def consumed(channel: Channel, queue: str, *, is_stream: bool = True) -> list[bytes]:
    """Return the bodies that a consumer gets; from a stream, from its first message on.

    They are as many as the broker counts, and any that follow at once.
    """
    count = channel.queue_declare(queue, passive=True).message_count
    channel.qos(1000)
    arguments = {"x-stream-offset": "first"} if is_stream else None
    consumer = channel.consume(queue, arguments=arguments)
    found: list[bytes] = []
    while True:
        consumer.inactivity_timeout = SECONDS if len(found) < count else QUIET_SECONDS
        message = next(consumer, None)
        if message is None:
            break
        message.ack()
        found.append(message.body)
    consumer.cancel()
    return found
