"""Behaviours 61, 62 and 64: who gets the next message, and who holds one for too long."""

from __future__ import annotations

import pytest

from support.brokers.brokers import Broker, Client
from support.wire import raw

CONSUME = (60, 20)


def fill(connection: raw.Connection, queue: str, count: int) -> None:
    """Publish "0", "1" … and wait until they are there."""
    connection.send(*[raw.publish(1, "", queue, b"%d" % i) for i in range(count)])
    connection.sync(1)


def put(connection: raw.Connection, queue: str, count: int) -> None:
    """Publish "0", "1" … and wait for nothing."""
    connection.send(*[raw.publish(1, "", queue, b"%d" % i) for i in range(count)])


def bodies(connection: raw.Connection, channel: int, count: int) -> list[bytes]:
    """The bodies of the next deliveries on the channel."""
    return [connection.expect(channel, "basic.deliver").body for _ in range(count)]


def numbers(*values: int) -> list[bytes]:
    """The bodies that `fill` published."""
    return [b"%d" % value for value in values]


def declare_single(connection: raw.Connection, queue: str, *, exclusive: bool = True) -> None:
    """Declare a queue with a single active consumer."""
    arguments = {"x-single-active-consumer": True}
    connection.declare(1, queue, exclusive=exclusive, arguments=arguments)


def consume(connection: raw.Connection, queue: str, tag: str, priority: int | None = None) -> None:
    """Consume with acks, on channel 1."""
    arguments = {} if priority is None else {"x-priority": priority}
    values = {"queue": queue, "consumer_tag": tag, "arguments": arguments}
    connection.call(1, "basic.consume", **values)


def tags(connection: raw.Connection, count: int) -> list[str]:
    """The consumer tags of the next deliveries on channel 1."""
    return [connection.expect(1, "basic.deliver").consumer_tag for _ in range(count)]


# -- 61: the single active consumer


def test_b61_one_consumer_gets_all(client: Client, name: str) -> None:
    """61: the first that came; when it ends the next one in the order of registration."""
    owner = client()
    declare_single(owner, name, exclusive=False)
    takers = [client() for _ in range(3)]
    for place, taker in enumerate(takers):
        consume(taker, name, f"c{place}")
    for place, taker in enumerate(takers):
        fill(owner, name, 3)
        assert bodies(taker, 1, 3) == numbers(0, 1, 2)
        taker.send(raw.method(1, "basic.ack", delivery_tag=0, multiple=True))
        for other in takers[place + 1 :]:
            other.sync(1)
        taker.call(1, "basic.cancel", consumer_tag=f"c{place}")
    fill(owner, name, 1)
    assert owner.declare(1, name, passive=True).message_count == 1
    owner.call(1, "queue.delete", queue=name)


@pytest.mark.parametrize("how", ["channel", "socket"])
def test_b61_the_next_one_gets_what_comes_back_first(client: Client, name: str, how: str) -> None:
    """61: in the old order, before what waits."""
    owner, first, second = client(), client(), client()
    declare_single(owner, name, exclusive=False)
    for taker, tag in ((first, "a"), (second, "b")):
        taker.call(1, "basic.qos", prefetch_count=2)
        consume(taker, name, tag)
    fill(owner, name, 4)
    assert bodies(first, 1, 2) == numbers(0, 1)
    if how == "channel":
        first.call(1, "channel.close", code=200)
    else:
        first.socket.close()
    got = [second.expect(1, "basic.deliver") for _ in range(2)]
    assert [(one.body, one.redelivered) for one in got] == [(b"0", True), (b"1", True)]
    second.send(raw.method(1, "basic.ack", delivery_tag=2, multiple=True))
    assert bodies(second, 1, 2) == numbers(2, 3)
    owner.call(1, "queue.delete", queue=name)


def test_b61_after_a_cancel_unacked_messages_come_first(
    connection: raw.Connection, name: str, broker: Broker
) -> None:
    """61: the next one waits for them: what is given back keeps the order."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ 3.10 lets both hold messages, or none get any")
    declare_single(connection, name)
    connection.call(1, "basic.qos", prefetch_count=2)
    for tag in ("a", "b"):
        consume(connection, name, tag)
    put(connection, name, 4)
    assert bodies(connection, 1, 2) == numbers(0, 1)
    connection.call(1, "basic.cancel", consumer_tag="a")
    connection.send(raw.method(1, "basic.ack", delivery_tag=1))
    connection.sync(1)
    connection.send(raw.method(1, "basic.reject", delivery_tag=2, requeue=True))
    got = [connection.expect(1, "basic.deliver") for _ in range(2)]
    assert [(one.consumer_tag, one.body) for one in got] == [("b", b"1"), ("b", b"2")]


def test_b61_a_higher_priority_becomes_active(
    connection: raw.Connection, name: str, broker: Broker
) -> None:
    """61: as in RabbitMQ 4.3's quorum queues: as soon as the one before it holds nothing."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ 3.10 keeps the first one until it ends")
    declare_single(connection, name)
    connection.call(1, "basic.qos", prefetch_count=2)
    consume(connection, name, "low")
    put(connection, name, 4)
    assert tags(connection, 2) == ["low"] * 2
    consume(connection, name, "high", 1)
    connection.send(raw.method(1, "basic.ack", delivery_tag=1))
    connection.sync(1)
    connection.send(raw.method(1, "basic.ack", delivery_tag=2))
    assert tags(connection, 2) == ["high"] * 2


def test_b61_priority_chooses_the_next_one(client: Client, name: str) -> None:
    """61: before the order of registration."""
    owner, taker = client(), client()
    declare_single(owner, name, exclusive=False)
    consume(taker, name, "first", 9)
    for tag, priority in (("low", None), ("high", 3), ("high too", 3)):
        consume(taker, name, tag, priority)
    taker.call(1, "basic.cancel", consumer_tag="first")
    fill(owner, name, 2)
    assert tags(taker, 2) == ["high"] * 2
    taker.close()
    owner.call(1, "queue.delete", queue=name)


def test_b61_an_exclusive_consumer_is_refused(connection: raw.Connection, name: str) -> None:
    """52, 61: also when it is the only one."""
    declare_single(connection, name)
    connection.open_channel(2)
    connection.send(raw.method(2, "basic.consume", queue=name, exclusive=True))
    text = f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"
    connection.expect_channel_close(2, 403, text, CONSUME)


# -- 62: priorities


def test_b62_higher_priorities_come_first(connection: raw.Connection, name: str) -> None:
    """62: lower ones get what all higher ones have no room for; equal ones take turns."""
    connection.declare(1, name, exclusive=True)
    connection.call(1, "basic.qos", prefetch_count=2)
    for tag, priority in (("none", None), ("high", 9), ("high too", 9), ("less", -1)):
        consume(connection, name, tag, priority)
    put(connection, name, 9)
    assert tags(connection, 8) == ["high", "high too"] * 2 + ["none"] * 2 + ["less"] * 2
    # A delivery to "none" is acked: only "none" has room, until a high one has.
    connection.send(raw.method(1, "basic.ack", delivery_tag=5))
    assert tags(connection, 1) == ["none"]
    put(connection, name, 2)
    connection.send(raw.method(1, "basic.ack", delivery_tag=1))
    assert tags(connection, 1) == ["high"]
    connection.send(raw.method(1, "basic.ack", delivery_tag=7))
    assert tags(connection, 1) == ["less"]


@pytest.mark.parametrize(
    ("priority", "type"),
    [("5", "longstr"), (1.5, "double"), (True, "bool"), (None, "void"), ({}, "table")],
)
def test_b62_a_priority_is_an_integer(
    connection: raw.Connection, name: str, priority: object, type: str
) -> None:
    """62: else 406, in RabbitMQ's words."""
    connection.declare(1, name, exclusive=True)
    connection.open_channel(2)
    arguments = {"x-priority": priority}
    connection.send(raw.method(2, "basic.consume", queue=name, arguments=arguments))
    text = (
        f"PRECONDITION_FAILED - invalid arg 'x-priority' for queue '{name}' in vhost '/': "
        f'"expected integer, got {type}"'
    )
    connection.expect_channel_close(2, 406, text, CONSUME)


# -- 64: the time limit for acks


@pytest.mark.parametrize("method", ["basic.consume", "basic.get"])
def test_b64_a_late_ack(client: Client, name: str, method: str, broker: Broker) -> None:
    """64: the consumer is cancelled, or a get's channel closed, and the message goes back."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ has a queue's own limit since 3.12")
    owner, taker = client(), client()
    owner.declare(1, name, arguments={"x-consumer-timeout": 1})
    fill(owner, name, 1)
    taker.send(raw.method(1, method, queue=name))
    while taker.next_method().body != b"0":
        pass
    text = (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value "
        "used: 1 ms. This timeout value can be configured, see consumers doc guide to learn more"
    )
    if method == "basic.get":
        taker.expect_channel_close(1, 406, text, (0, 0))
    else:
        assert taker.expect(1, "basic.cancel").no_wait
        taker.sync(1)
    assert owner.drain(1, name) == numbers(0)
    owner.call(1, "queue.delete", queue=name)
