"""Behaviours 63, 67 and 68-72: limits of length and of deliveries, and where dead letters go."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support.brokers.brokers import Broker, Client
from support.wire import raw


def dlx(exchange: str, key: str | None = None, **more: object) -> dict[str, Any]:
    """Arguments of a queue whose dead letters go to `exchange`."""
    arguments: dict[str, Any] = {"x-dead-letter-exchange": exchange}
    if key is not None:
        arguments["x-dead-letter-routing-key"] = key
    return arguments | more


def rejected(connection: raw.Connection, queue: str) -> None:
    """Get a message of `queue` and reject it."""
    got = None
    while got is None:
        got = connection.get(1, queue, no_ack=False)
    connection.send(raw.method(1, "basic.reject", delivery_tag=got.delivery_tag, requeue=False))


def arrived(connection: raw.Connection, queue: str) -> raw.Method:
    """Get the message that is on its way to `queue` (RabbitMQ's are asynchronous)."""
    deadline = time.monotonic() + raw.SECONDS_MAX
    while time.monotonic() < deadline:
        got = connection.get(1, queue)
        if got is not None:
            return got
    raise TimeoutError(queue)


def headers_of(got: raw.Method) -> dict[str, Any]:
    """The headers of a message."""
    headers: dict[str, Any] = raw.decode_properties(got.properties)["headers"]
    return headers


def pair(connection: raw.Connection, name: str, **arguments: object) -> tuple[str, str]:
    """A queue that dead-letters by its own key, and where that goes."""
    to = connection.declare(1, name + "-to", exclusive=True).queue
    connection.declare(1, name, exclusive=True, arguments=dlx("", to, **arguments))
    return name, to


# -- 67: lengths


def test_b67_drop_head(connection: raw.Connection, name: str) -> None:
    """67: the oldest go, as `maxlen`; what is unacked does not count."""
    queue, to = pair(connection, name, **{"x-max-length": 2})
    connection.send(*[raw.publish(1, "", queue, b"%d" % n) for n in range(3)])
    assert connection.declare(1, queue, passive=True).message_count == 2
    held = connection.get(1, queue, no_ack=False)
    assert held is not None
    assert held.body == b"1"
    connection.send(raw.publish(1, "", queue, b"3"))
    assert connection.drain(1, queue) == [b"2", b"3"]
    letter = arrived(connection, to)
    assert letter.body == b"0"
    assert headers_of(letter)["x-death"][0]["reason"] == "maxlen"
    assert connection.get(1, to) is None


def test_b67_bytes_are_those_of_bodies(connection: raw.Connection, name: str) -> None:
    """67: properties do not count."""
    connection.declare(1, name, exclusive=True, arguments={"x-max-length-bytes": 10})
    headers = {"k": "v" * 100}
    connection.send(*[raw.publish(1, "", name, b"12345", headers=headers) for _ in range(3)])
    assert connection.drain(1, name) == [b"12345"] * 2
    connection.send(raw.publish(1, "", name, b"x" * 11))
    assert connection.get(1, name) is None


def test_b67_no_room_but_a_consumer(connection: raw.Connection, name: str) -> None:
    """67: a length of 0 lets through what somebody takes at once."""
    connection.declare(1, name, exclusive=True, arguments={"x-max-length": 0})
    connection.call(1, "basic.consume", queue=name, no_ack=True)
    connection.send(raw.publish(1, "", name, b"through"))
    assert connection.expect(1, "basic.deliver").body == b"through"


def test_b67_requeue_makes_room(connection: raw.Connection, name: str) -> None:
    """67: what comes back counts again, and the head goes."""
    connection.declare(1, name, exclusive=True, arguments={"x-max-length": 1})
    connection.send(raw.publish(1, "", name, b"old"))
    held = connection.get(1, name, no_ack=False)
    assert held is not None
    connection.send(raw.publish(1, "", name, b"new"))
    connection.send(raw.method(1, "basic.nack", delivery_tag=held.delivery_tag, requeue=True))
    assert connection.drain(1, name) == [b"new"]


def test_b67_requeue_makes_room_before_what_comes_behind_it(whole: Client, name: str) -> None:
    """67: also where a get comes in one piece with the requeue."""
    connection = whole()
    connection.declare(1, name, exclusive=True, arguments={"x-max-length": 1})
    connection.send(raw.publish(1, "", name, b"old"))
    held = connection.get(1, name, no_ack=False)
    assert held is not None
    connection.send(
        raw.publish(1, "", name, b"new"),
        raw.method(1, "basic.nack", delivery_tag=held.delivery_tag, requeue=True),
        raw.method(1, "basic.get", queue=name, no_ack=True),
    )
    assert connection.expect(1, "basic.get-ok").body == b"new"
    assert connection.drain(1, name) == []


# -- 63: delivery limit


@pytest.mark.parametrize("limit", [0, 2])
def test_b63_delivery_limit(connection: raw.Connection, name: str, limit: int) -> None:
    """63: x-delivery-count tells how often it failed; one time too many and it dies."""
    to = connection.declare(1, name + "-to", exclusive=True).queue
    arguments = dlx("", to, **{"x-delivery-limit": limit, "x-queue-type": "quorum"})
    connection.declare(1, name, durable=True, arguments=arguments)
    connection.send(raw.publish(1, "", name, b"m"))
    tag = connection.call(1, "basic.consume", queue=name).consumer_tag
    for count in range(limit + 1):
        got = connection.expect(1, "basic.deliver")
        if count:
            assert headers_of(got)["x-delivery-count"] == count
        else:
            assert "headers" not in raw.decode_properties(got.properties)
        assert got.redelivered == (count > 0)
        connection.send(raw.method(1, "basic.reject", delivery_tag=got.delivery_tag, requeue=True))
    connection.call(1, "basic.consume", queue=to, no_ack=True)
    letter = connection.expect(1, "basic.deliver")
    assert headers_of(letter)["x-death"][0]["reason"] == "delivery_limit"
    connection.call(1, "basic.cancel", consumer_tag=tag)
    connection.call(1, "queue.delete", queue=name)


# -- 68: x-death


def test_b68_fields(connection: raw.Connection, name: str) -> None:
    """68: what an entry holds, and the first death's own headers; `expiration` is removed."""
    queue, to = pair(connection, name)
    connection.call(1, "queue.bind", queue=queue, exchange="amq.direct", routing_key=name + "-key")
    connection.send(
        raw.publish(1, "amq.direct", name + "-key", b"m", expiration="3600000", message_id="7")
    )
    rejected(connection, queue)
    letter = arrived(connection, to)
    properties = raw.decode_properties(letter.properties)
    assert properties["message_id"] == "7"
    assert "expiration" not in properties
    headers = headers_of(letter)
    (death,) = headers["x-death"]
    assert isinstance(death.pop("time"), int)
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": queue,
        "exchange": "amq.direct",
        "routing-keys": [name + "-key"],
        "original-expiration": "3600000",
    }
    assert headers["x-first-death-reason"] == "rejected"
    assert headers["x-first-death-queue"] == queue
    assert headers["x-first-death-exchange"] == "amq.direct"


def test_b68_newest_first_and_counted(connection: raw.Connection, name: str) -> None:
    """68: an entry per queue and reason; dying again counts it up and moves it to the front."""
    queue, to = pair(connection, name)
    connection.declare(1, name + "-end", exclusive=True)
    connection.call(1, "queue.delete", queue=to)
    connection.declare(1, to, exclusive=True, arguments=dlx("", queue))
    connection.send(raw.publish(1, "", queue, b"m"))
    for one in (queue, to, queue):
        rejected(connection, one)
    headers = headers_of(arrived(connection, to))
    seen = [(entry["queue"], entry["reason"], entry["count"]) for entry in headers["x-death"]]
    assert seen == [(queue, "rejected", 2), (to, "rejected", 1)]
    assert headers["x-first-death-queue"] == queue


def test_b68_last_death(connection: raw.Connection, name: str) -> None:
    """68: x-last-death-* follow the newest death (RabbitMQ from 3.13 on)."""
    queue, to = pair(connection, name)
    connection.call(1, "queue.delete", queue=to)
    end = connection.declare(1, name + "-end", exclusive=True).queue
    connection.declare(1, to, exclusive=True, arguments=dlx("", end, **{"x-message-ttl": 0}))
    connection.send(raw.publish(1, "", queue, b"m"))
    rejected(connection, queue)
    connection.call(1, "basic.consume", queue=end, no_ack=True)
    headers = headers_of(connection.expect(1, "basic.deliver"))
    assert headers["x-first-death-queue"] == queue
    assert headers["x-first-death-reason"] == "rejected"
    assert headers["x-last-death-queue"] == to
    assert headers["x-last-death-reason"] == "expired"
    assert headers["x-last-death-exchange"] == ""


# -- 69: circles


def test_b69_automatic_circle_ends(connection: raw.Connection, name: str) -> None:
    """69: a message that comes back without a reject is dropped."""
    connection.declare(1, name, exclusive=True, arguments=dlx("", name, **{"x-message-ttl": 0}))
    other, to = pair(connection, name + "-other", **{"x-message-ttl": 0})
    connection.send(raw.publish(1, "", name, b"circle"), raw.publish(1, "", other, b"marker"))
    connection.call(1, "basic.consume", queue=to, no_ack=True)
    assert connection.expect(1, "basic.deliver").body == b"marker"
    assert connection.get(1, name) is None


def test_b69_circle_with_a_reject_goes_on(connection: raw.Connection, name: str) -> None:
    """69: a consumer that rejects may see its message again."""
    connection.declare(1, name, exclusive=True, arguments=dlx("", name))
    connection.send(raw.publish(1, "", name, b"again"))
    for _ in range(3):
        rejected(connection, name)
    assert headers_of(arrived(connection, name))["x-death"][0]["count"] == 3


# -- 70: where they go


def test_b70_missing_exchange(connection: raw.Connection, name: str) -> None:
    """70: they are dropped."""
    connection.declare(1, name, exclusive=True, arguments=dlx(name + "-missing"))
    connection.send(raw.publish(1, "", name, b"m"))
    rejected(connection, name)
    assert connection.declare(1, name, passive=True).message_count == 0


def test_b70_own_key_and_copies(connection: raw.Connection, exchanges: raw.Exchanges) -> None:
    """70: without a key of the queue's they go by the message's own, and its CC."""
    exchange = exchanges("direct")
    queue = connection.declare(1, exclusive=True, arguments=dlx(exchange)).queue
    by_key = raw.bound_queue(connection, exchange, queue)
    by_copy = raw.bound_queue(connection, exchange, "copy")
    connection.send(raw.publish(1, "", queue, b"m", headers={"CC": ["copy"]}))
    rejected(connection, queue)
    for target in (by_key, by_copy):
        letter = arrived(connection, target)
        assert letter.routing_key == queue
        headers = headers_of(letter)
        assert headers["CC"] == ["copy"]
        assert headers["x-death"][0]["routing-keys"] == [queue, "copy"]


def test_b70_key_of_the_queue(broker: Broker, connection: raw.Connection, name: str) -> None:
    """70: with a key of the queue's the CC leads nowhere; RabbitMQ 4.3 keeps it in the headers."""
    queue, to = pair(connection, name)
    copy = connection.declare(1, name + "-copy", exclusive=True).queue
    connection.send(raw.publish(1, "", queue, b"m", headers={"CC": [copy], "k": 1}))
    connection.call(1, "queue.purge", queue=copy)
    rejected(connection, queue)
    headers = headers_of(arrived(connection, to))
    assert headers.get("CC") == (None if broker.is_rabbitmq else [copy])
    assert headers["k"] == 1
    assert connection.get(1, copy) is None


# -- 71, 72: what the letter holds


def test_b71_publishers_own_is_not_believed(connection: raw.Connection, name: str) -> None:
    """71: a forged history neither counts nor stops a message (as RabbitMQ 4.3)."""
    queue, to = pair(connection, name)
    forged = [
        {"queue": queue, "reason": "rejected", "count": 99},
        {"queue": to, "reason": "maxlen"},
    ]
    connection.send(raw.publish(1, "", queue, b"m", headers={"x-death": forged}))
    rejected(connection, queue)
    letter = arrived(connection, to)
    (death,) = headers_of(letter)["x-death"]
    assert death["count"] == 1


def test_b72_keeps_headers_and_says_where_it_went(
    connection: raw.Connection, exchanges: raw.Exchanges
) -> None:
    """72: exchange and routing key are those of the dead-lettering; the rest stays."""
    exchange = exchanges("topic")
    queue = connection.declare(1, exclusive=True, arguments=dlx(exchange, "dead.letter")).queue
    to = raw.bound_queue(connection, exchange, "dead.*")
    typed = raw.Typed("b", 7)
    connection.send(
        raw.publish(
            1, "", queue, b"m", headers={"mine": typed}, content_type="text/plain", delivery_mode=2
        )
    )
    rejected(connection, queue)
    letter = arrived(connection, to)
    assert (letter.exchange, letter.routing_key) == (exchange, "dead.letter")
    assert headers_of(letter)["mine"] == 7
    properties = raw.decode_properties(letter.properties)
    assert properties["content_type"] == "text/plain"
    assert properties["delivery_mode"] == 2
