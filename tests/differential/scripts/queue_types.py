"""Quorum queues and streams, as far as AMQP 0-9-1 sees them."""

from __future__ import annotations

from typing import Any

from differential.script import script
from differential.stage import Channel, Stage
from support.wire import raw
from support.wire.raw import Typed

QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}
STREAM: dict[str, Any] = {"x-queue-type": "stream"}


def delete(s: Stage, a: Channel, name: str = "q") -> None:
    """Delete what a script declared durably."""
    a.call("queue.delete", queue=s.name(name))


@script(63)
def quorum_declare(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, durable=True, arguments=QUORUM)
    a.declare(queue, durable=True, arguments=QUORUM)
    a.count(queue)
    a.declare(queue, durable=True)
    a.declare(queue, durable=True, arguments={"x-queue-type": "classic"})
    a.declare(queue, durable=True, arguments=QUORUM | {"x-delivery-limit": 3})
    delete(s, a)


@script(63)
def quorum_flags(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), arguments=QUORUM)
    a.declare(s.name("q"), durable=True, exclusive=True, arguments=QUORUM)
    a.declare(s.name("q"), durable=True, auto_delete=True, arguments=QUORUM)
    delete(s, a)


@script(63)
def quorum_arguments(s: Stage) -> None:
    a = s.channel()
    for arguments in (
        {"x-max-priority": 5}, {"x-queue-mode": "lazy"}, {"x-delivery-limit": "5"},
        {"x-delivery-limit": -1}, {"x-overflow": "reject-publish-dlx"}, {"x-message-ttl": 1000},
        {"x-max-age": "1D"}, {"x-single-active-consumer": True}, {"x-dead-letter-strategy": "x"},
        {"x-dead-letter-strategy": "at-least-once"}, {"x-quorum-initial-group-size": 1},
    ):  # fmt: skip
        a.declare(s.name("q"), durable=True, arguments=QUORUM | arguments)
        delete(s, a)


@script(63)
def quorum_delivery_limit(s: Stage) -> None:
    a = s.channel()
    queue, dead = s.name("q"), s.name("dead")
    a.declare(dead, exclusive=True)
    arguments = {"x-delivery-limit": 2, "x-dead-letter-exchange": ""}
    keyed = {"x-dead-letter-routing-key": dead}
    a.declare(queue, durable=True, arguments=QUORUM | arguments | keyed)
    a.consume(queue)
    a.consume(dead, "dead", no_ack=True)
    a.publish("", queue, "x", headers={"h": 1})
    for _ in range(3):
        (got,) = a.delivered()
        a.reject(got.tag)
    a.delivered()
    delete(s, a)
    a.hear()


@script(63)
def quorum_delivery_limit_by_default(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, durable=True, arguments=QUORUM)
    a.confirm()
    a.publish("", queue, "x")
    a.confirmed()
    a.consume(queue)
    for _ in range(21):
        tag = a.peer.next_on(1).tag
        a.peer.send(raw.method(1, "basic.reject", delivery_tag=tag, requeue=True))
    a.sync()
    a.close()
    a.get(queue)
    delete(s, a)


@script(46)
def arguments_of_other_types(s: Stage) -> None:
    """Arguments that not all releases of RabbitMQ have, and where they have no meaning."""
    a = s.channel()
    for number, (kind, name, value) in enumerate((
        ("stream", "x-queue-mode", "lazy"), ("quorum", "x-queue-version", 2),
        ("stream", "x-queue-version", 2), ("quorum", "x-queue-leader-locator", "x"),
        ("classic", "x-dead-letter-strategy", "at-least-once"),
        ("quorum", "x-delayed-retry-type", "x"), ("classic", "x-delayed-retry-type", "all"),
        ("quorum", "x-delivery-limit", -2), ("stream", "x-stream-filter-size-bytes", 3),
        ("classic", "x-stream-filter-size-bytes", 32),
        ("quorum", "x-quorum-initial-group-size", 0),
    )):  # fmt: skip
        queue = f"{name}-{number}"
        a.declare(s.name(queue), durable=True, arguments={"x-queue-type": kind, name: value})
        delete(s, a, queue)


@script(63)
def quorum_dead_letter(s: Stage) -> None:
    a = s.channel()
    queue, dead = s.name("q"), s.name("dead")
    a.declare(dead, exclusive=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    a.declare(queue, durable=True, arguments=QUORUM | arguments)
    a.consume(queue)
    a.consume(dead, "dead", no_ack=True)
    a.publish("", queue, "x")
    (got,) = a.delivered()
    a.reject(got.tag, requeue=False)
    a.delivered()
    a.cancel()
    delete(s, a)


def quorum(s: Stage, a: Channel, *bodies: str, **arguments: Any) -> str:
    """A quorum queue with these messages."""
    queue = s.name("q")
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    a.declare(queue, durable=True, arguments=QUORUM | named)
    a.confirm()
    for body in bodies:
        a.publish("", queue, body)
    if bodies:
        a.confirmed()
    return queue


@script(59)
def quorum_requeue_order(s: Stage) -> None:
    a = s.channel()
    queue = quorum(s, a, "1", "2", "3", "4")
    a.consume(queue)
    a.delivered(3)
    a.cancel()
    a.nack(3)
    a.nack(1)
    a.bodies(queue)
    delete(s, a)


@script(52)
def quorum_exclusive_consumer(s: Stage) -> None:
    a = s.channel()
    queue = quorum(s, a)
    a.consume(queue, "1", exclusive=True)
    a.consume(queue, "2")
    delete(s, a)


@script(67)
def quorum_reject_publish(s: Stage) -> None:
    a = s.channel()
    queue = quorum(s, a, "1", x_max_length=1, x_overflow="reject-publish")
    for body in "23":
        a.publish("", queue, body)
        a.confirmed()
    delete(s, a)


@script(68)
def quorum_dead_letter_to_a_quorum_queue(s: Stage) -> None:
    a = s.channel()
    dead = s.name("dead")
    a.declare(dead, durable=True, arguments=QUORUM)
    to = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": dead}
    queue = quorum(s, a, "x", **to)
    a.consume(queue)
    (got,) = a.delivered()
    a.reject(got.tag, requeue=False)
    a.consume(dead, "dead", no_ack=True)
    a.delivered()
    delete(s, a, "dead")
    delete(s, a)


@script(57, 63)
def quorum_publish_and_get(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, durable=True, arguments=QUORUM)
    a.confirm()
    a.publish("", queue, "1", mandatory=True)
    a.publish("", queue, "2")
    a.confirmed()
    a.get(queue, no_ack=False)
    a.get(queue)
    a.get(queue)
    a.ack(1)
    a.call("queue.purge", queue=queue)
    delete(s, a)


@script(56)
def quorum_global_prefetch(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), durable=True, arguments=QUORUM)
    a.qos(5, overall=True)
    a.consume(s.name("q"))
    delete(s, a)


@script(46)
def stream_declare(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, durable=True, arguments=STREAM)
    a.declare(queue, durable=True, arguments=STREAM)
    a.declare(queue, durable=True)
    a.declare(queue, arguments=STREAM)
    a.declare(queue, durable=True, arguments=STREAM | {"x-max-age": "1D"})
    delete(s, a)


@script(46)
def stream_flags(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), arguments=STREAM)
    a.declare(s.name("q"), durable=True, exclusive=True, arguments=STREAM)
    a.declare(s.name("q"), durable=True, auto_delete=True, arguments=STREAM)
    delete(s, a)


@script(46)
def stream_max_age(s: Stage) -> None:
    a = s.channel()
    for age in ("1Y", "7D", "30s", "1h", "5m", "2M", "abc", "5", "", 5, "-1D", "1.5D", "1X"):
        a.declare(s.name("q"), durable=True, arguments=STREAM | {"x-max-age": age})
        delete(s, a)


@script(46)
def stream_arguments(s: Stage) -> None:
    a = s.channel()
    for arguments in (
        {"x-message-ttl": 1000}, {"x-expires": 60_000}, {"x-max-length": 5},
        {"x-max-length-bytes": 1000}, {"x-max-priority": 5}, {"x-dead-letter-exchange": "a"},
        {"x-overflow": "drop-head"}, {"x-single-active-consumer": True},
        {"x-stream-max-segment-size-bytes": 1_000_000}, {"x-stream-max-segment-size-bytes": -1},
        {"x-stream-max-segment-size-bytes": "5"}, {"x-initial-cluster-size": 1},
        {"x-queue-leader-locator": "client-local"}, {"x-delivery-limit": 5},
    ):  # fmt: skip
        a.declare(s.name("q"), durable=True, arguments=STREAM | arguments)
        delete(s, a)


def stream(s: Stage, a: Channel, count: int = 3) -> str:
    """A stream with messages."""
    queue = s.name("q")
    a.declare(queue, durable=True, arguments=STREAM)
    a.confirm()
    for body in range(count):
        a.publish("", queue, str(body), headers={"h": body}, message_id=str(body))
        a.confirmed()
    return queue


@script(57)
def stream_get_and_purge(s: Stage) -> None:
    a = s.channel()
    queue = stream(s, a)
    a.get(queue)
    a.get(queue, no_ack=False)
    a.call("queue.purge", queue=queue)
    delete(s, a)


@script(56)
def stream_consume_wrongly(s: Stage) -> None:
    a = s.channel()
    queue = stream(s, a, 1)
    a.consume(queue)
    a.qos(5)
    a.consume(queue, no_ack=True)
    a.qos(5, overall=True)
    a.consume(queue)
    a.qos(5)
    a.consume(queue, exclusive=True)
    a.cancel()
    delete(s, a)


@script(55)
def stream_offsets(s: Stage) -> None:
    a = s.channel()
    queue = stream(s, a, 5)
    a.qos(10)
    past = Typed("T", 1_000_000_000)
    for offset, count in (
        ("first", 5), (0, 5), (2, 3), (Typed("l", 4), 1), (Typed("b", 3), 2), (past, 5),
        ("1h", 5), ("5m", 5), ("100s", 5),
    ):  # fmt: skip
        a.consume(queue, arguments={"x-stream-offset": offset})
        got = a.delivered(count)
        a.ack(got[-1].tag, multiple=True)
        a.cancel()
    delete(s, a)


@script(55)
def stream_timestamps(s: Stage) -> None:
    a = s.channel()
    s.extras = True
    queue = stream(s, a, 1)
    a.qos(10)
    a.consume(queue, arguments={"x-stream-offset": "first"})
    a.delivered()
    a.cancel()
    delete(s, a)


@script(55)
def stream_offset_next(s: Stage) -> None:
    a = s.channel()
    queue = stream(s, a, 2)
    a.qos(10)
    for tag, arguments in (("next", {"x-stream-offset": "next"}), ("default", {})):
        a.consume(queue, tag, arguments=arguments)
        a.publish("", queue, tag)
        a.delivered()
        a.cancel(tag)
    a.consume(queue, "far", arguments={"x-stream-offset": 1000})
    a.cancel("far")
    delete(s, a)


@script(55)
def stream_offset_last(s: Stage) -> None:
    a = s.channel()
    queue = stream(s, a, 3)
    a.qos(10)
    a.consume(queue, arguments={"x-stream-offset": "last"})
    a.delivered()
    a.cancel()
    delete(s, a)


@script(46)
def stream_offset_negative(s: Stage) -> None:
    a = s.channel()
    queue = stream(s, a, 3)
    a.qos(10)
    a.consume(queue, arguments={"x-stream-offset": -2})
    a.delivered()
    a.cancel()
    delete(s, a)


@script(46)
def stream_offset_invalid(s: Stage) -> None:
    a = s.channel()
    queue = stream(s, a, 1)
    for offset in ("middle", "", "5", "h", "1x", 1.5, True, None, [1]):
        a.qos(5)
        a.consume(queue, arguments={"x-stream-offset": offset})
        a.cancel()
    delete(s, a)


@script(56)
def stream_prefetch(s: Stage) -> None:
    a = s.channel()
    queue = stream(s, a, 4)
    a.qos(2)
    a.consume(queue, arguments={"x-stream-offset": "first"})
    a.delivered(2)
    a.sync()
    a.rest()
    a.ack(2, multiple=True)
    a.delivered(2)
    delete(s, a)
    a.hear()


@script(59)
def stream_nack(s: Stage) -> None:
    a = s.channel()
    queue = stream(s, a, 2)
    a.qos(1)
    a.consume(queue, arguments={"x-stream-offset": "first"})
    a.delivered()
    a.nack(1)
    a.delivered()
    a.reject(2, requeue=False)
    a.cancel()
    delete(s, a)


@script(72)
def stream_properties(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, durable=True, arguments=STREAM)
    a.qos(50)
    a.consume(queue, arguments={"x-stream-offset": "first"})
    values: dict[str, Any] = {
        "content_type": "t", "content_encoding": "e", "delivery_mode": 1, "priority": 3,
        "correlation_id": "c", "reply_to": "r", "expiration": "60000", "message_id": "m",
        "timestamp": 1_000_000_000, "type": "t", "user_id": "guest", "app_id": "a",
    }  # fmt: skip
    for name, value in values.items():
        a.publish("", queue, name, **{name: value})
        a.delivered()
    headers: dict[str, Any] = {
        "t": True, "b": Typed("b", -5), "B": Typed("B", 200), "s": Typed("s", -300),
        "I": 5, "l": Typed("l", 2**40), "d": 2.5, "S": "text", "x": b"\x00", "T": Typed("T", 9),
        "V": None, "A": [1], "F": {"a": 1},
    }  # fmt: skip
    for name, value in headers.items():
        a.publish("", queue, name, headers={name: value})
        a.delivered()
    delete(s, a)


@script(44)
def stream_bind_and_delete(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, durable=True, arguments=STREAM)
    a.bind(queue, "amq.direct", queue)
    a.confirm()
    a.publish("amq.direct", queue, "x", mandatory=True)
    a.confirmed()
    a.call("queue.delete", queue=queue, if_unused=True)
    a.call("queue.delete", queue=queue, if_empty=True)
    delete(s, a)
