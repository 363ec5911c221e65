"""What RabbitMQ 3.10 does not know of reading streams: filters, names, and super streams."""

from __future__ import annotations

from typing import Any

from differential.script import script
from differential.scripts.queue_types import STREAM, delete
from differential.stage import Channel, Stage


def labelled(s: Stage, a: Channel) -> str:
    """A stream with a message of each of two filter values."""
    queue = s.name("q")
    a.declare(queue, durable=True, arguments=STREAM)
    a.confirm()
    for value in ("red", "blue"):
        a.publish("", queue, value, headers={"x-stream-filter-value": value})
        a.confirmed()
    return queue


@script(57)
def stream_filter(s: Stage) -> None:
    a = s.channel()
    queue = labelled(s, a)
    a.qos(10)
    a.consume(queue, arguments={"x-stream-offset": "first", "x-stream-filter": "blue"})
    a.delivered()
    a.cancel()
    delete(s, a)


@script(57)
def stream_consumer_name(s: Stage) -> None:
    """Ack one message under a name, and read under it once more."""
    a = s.channel()
    queue = labelled(s, a)
    arguments: dict[str, Any] = {"x-stream-offset": "first", "x-stream-consumer": "app"}
    for _ in range(2):
        a.qos(1)
        a.consume(queue, arguments=arguments)
        (got,) = a.delivered()
        # Before the ack, which would let more come.
        a.cancel()
        a.send("basic.ack", delivery_tag=got.fields["delivery_tag"])
        a.close()
    delete(s, a)


@script(42)
def super_stream(s: Stage) -> None:
    a = s.channel()
    name = s.name("q")
    a.declare(name, durable=True, arguments=STREAM | {"x-super-stream-partitions": 2})
    a.call("queue.declare", queue=f"{name}-0", passive=True)
    delete(s, a)
