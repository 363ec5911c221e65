"""Behaviours 51-60: consumers, prefetch, get, acks and redelivery."""

from __future__ import annotations

import pytest

from support.brokers.brokers import Broker, Client
from support.wire import raw

CONSUME = (60, 20)


def fill(connection: raw.Connection, queue: str, count: int) -> None:
    """Publish "0", "1" … and wait until they are there."""
    connection.send(*[raw.publish(1, "", queue, b"%d" % i) for i in range(count)])
    connection.sync(1)


def bodies(connection: raw.Connection, channel: int, count: int) -> list[bytes]:
    """The bodies of the next deliveries on the channel."""
    return [connection.expect(channel, "basic.deliver").body for _ in range(count)]


def numbers(*values: int) -> list[bytes]:
    """The bodies that `fill` published."""
    return [b"%d" % value for value in values]


# -- 51, 52: tags and exclusive consumers


def test_b51_duplicate_tag_is_530(connection: raw.Connection, name: str) -> None:
    """51: the connection ends; the same tag on another channel is fine."""
    connection.declare(1, name, exclusive=True)
    connection.open_channel(2)
    for channel in (1, 2):
        connection.call(channel, "basic.consume", queue=name, consumer_tag="tag")
    connection.send(raw.method(1, "basic.consume", queue=name, consumer_tag="tag"))
    text = "NOT_ALLOWED - attempt to reuse consumer tag 'tag'"
    connection.expect_connection_close(530, text, CONSUME)


def test_b51_cancelled_tag_may_be_used_again(connection: raw.Connection, name: str) -> None:
    """51: the tag is free after cancel-ok."""
    connection.declare(1, name, exclusive=True)
    for _ in range(2):
        connection.call(1, "basic.consume", queue=name, consumer_tag="tag")
        connection.call(1, "basic.cancel", consumer_tag="tag")


def test_b51_empty_tag_asks_for_one(connection: raw.Connection, name: str) -> None:
    """51: amq.ctag- and something unique."""
    connection.declare(1, name, exclusive=True)
    tags = {connection.call(1, "basic.consume", queue=name).consumer_tag for _ in range(3)}
    assert len(tags) == 3
    assert all(tag.startswith("amq.ctag-") for tag in tags)


@pytest.mark.parametrize("flags", [(False, True), (True, False), (True, True)])
def test_b52_exclusive_consumers_are_alone(
    connection: raw.Connection, name: str, flags: tuple[bool, bool]
) -> None:
    """52: 403 for an exclusive one beside others and for any beside an exclusive one."""
    connection.declare(1, name, exclusive=True)
    connection.open_channel(2)
    first = connection.call(1, "basic.consume", queue=name, exclusive=flags[0])
    connection.send(raw.method(2, "basic.consume", queue=name, exclusive=flags[1]))
    text = f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"
    connection.expect_channel_close(2, 403, text, CONSUME)
    connection.call(1, "basic.cancel", consumer_tag=first.consumer_tag)
    connection.open_channel(2)
    connection.call(2, "basic.consume", queue=name, exclusive=flags[1])


@pytest.mark.parametrize("method", ["basic.consume", "basic.get"])
def test_b52_missing_queue_is_404(connection: raw.Connection, name: str, method: str) -> None:
    """52: for consume and get alike."""
    connection.send(raw.method(1, method, queue=name))
    connection.expect_channel_close(1, 404, f"NOT_FOUND - no queue '{name}' in vhost '/'")


# -- 53, 54, 55: cancel


def test_b53_cancel_of_an_unknown_tag_is_fine(connection: raw.Connection) -> None:
    """53: cancel-ok with that tag; with no-wait nothing."""
    assert connection.call(1, "basic.cancel", consumer_tag="none").consumer_tag == "none"
    connection.send(raw.method(1, "basic.cancel", consumer_tag="none", no_wait=True))
    connection.sync(1)


def test_b53_unacked_messages_stay_after_cancel(connection: raw.Connection, name: str) -> None:
    """53: they may still be acked; those that are not go back with the channel."""
    connection.declare(1, name, exclusive=True)
    connection.open_channel(2)
    fill(connection, name, 3)
    connection.call(2, "basic.qos", prefetch_count=2)
    tag = connection.call(2, "basic.consume", queue=name).consumer_tag
    assert bodies(connection, 2, 2) == numbers(0, 1)
    connection.call(2, "basic.cancel", consumer_tag=tag)
    assert connection.declare(1, name, passive=True).message_count == 1
    connection.send(raw.method(2, "basic.ack", delivery_tag=1))
    connection.call(2, "channel.close", code=200)
    assert connection.drain(1, name) == numbers(1, 2)


def test_b54_queue_delete_cancels_consumers(client: Client, name: str) -> None:
    """54: basic.cancel from the broker, with no-wait, to those who announced it; else silence."""
    told = client()
    silent = client(raw.Login(capabilities={"consumer_cancel_notify": False}))
    told.declare(1, name)
    tag = told.call(1, "basic.consume", queue=name).consumer_tag
    silent.call(1, "basic.consume", queue=name)
    owner = client()
    owner.call(1, "queue.delete", queue=name)
    assert told.expect(1, "basic.cancel").fields == {"consumer_tag": tag, "no_wait": True}
    told.sync(1)
    silent.sync(1)


@pytest.mark.parametrize("durable", [False, True])
def test_b54_the_ok_of_a_delete_comes_before_its_cancel(
    connection: raw.Connection, name: str, durable: bool
) -> None:
    """54: a channel that deletes the queue that it consumes hears of the delete first."""
    connection.declare(1, name, durable=durable)
    connection.call(1, "basic.consume", queue=name, consumer_tag="t")
    connection.call(1, "queue.delete", queue=name)
    assert connection.expect(1, "basic.cancel").consumer_tag == "t"
    connection.sync(1)


def test_b55_consume_ok_comes_before_the_first_deliver(
    connection: raw.Connection, name: str
) -> None:
    """55: also when messages wait already; nothing is delivered after cancel-ok."""
    connection.declare(1, name, exclusive=True)
    fill(connection, name, 3)
    connection.send(raw.method(1, "basic.consume", queue=name, consumer_tag="t", no_ack=True))
    connection.expect(1, "basic.consume-ok")
    deliver = connection.expect(1, "basic.deliver")
    assert deliver.fields == {
        "consumer_tag": "t", "delivery_tag": 1, "redelivered": False,
        "exchange": "", "routing_key": name,
    }  # fmt: skip
    assert bodies(connection, 1, 2) == numbers(1, 2)
    connection.send(
        raw.method(1, "basic.cancel", consumer_tag="t"), raw.publish(1, "", name, b"late")
    )
    connection.expect(1, "basic.cancel-ok")
    connection.sync(1)
    assert connection.drain(1, name) == [b"late"]


def test_b55_consume_with_no_wait(connection: raw.Connection, name: str) -> None:
    """55: no consume-ok; deliveries come at once."""
    connection.declare(1, name, exclusive=True)
    fill(connection, name, 1)
    connection.send(raw.method(1, "basic.consume", queue=name, consumer_tag="t", no_wait=True))
    assert connection.expect(1, "basic.deliver").consumer_tag == "t"


def test_consumers_take_turns(connection: raw.Connection, name: str) -> None:
    """Round-robin (RabbitMQ): each of three consumers gets every third message."""
    connection.declare(1, name, exclusive=True)
    for tag in ("a", "b", "c"):
        connection.call(1, "basic.consume", queue=name, consumer_tag=tag, no_ack=True)
    fill_parts = [raw.publish(1, "", name, b"%d" % i) for i in range(9)]
    connection.send(*fill_parts)
    got = [connection.expect(1, "basic.deliver") for _ in range(9)]
    tags = [deliver.consumer_tag for deliver in got]
    assert [deliver.body for deliver in got] == numbers(*range(9))
    assert tags == [tags[i % 3] for i in range(9)]
    assert set(tags) == {"a", "b", "c"}


# -- 56: prefetch


def test_b56_prefetch_size_is_540(connection: raw.Connection) -> None:
    """56: RabbitMQ counts messages only."""
    connection.send(raw.method(1, "basic.qos", prefetch_size=1))
    text = "NOT_IMPLEMENTED - prefetch_size!=0 (1)"
    connection.expect_connection_close(540, text, (60, 10))


def test_b56_prefetch_is_of_later_consumers(connection: raw.Connection, name: str) -> None:
    """56: global=false: each new consumer by itself, the earlier one as it was."""
    queues = [f"{name}-{i}" for i in range(3)]
    for queue in queues:
        connection.declare(1, queue, exclusive=True)
        fill(connection, queue, 5)
    connection.open_channel(2)
    for prefetch, queue in zip((2, 3, 0), queues, strict=True):
        connection.call(2, "basic.qos", prefetch_count=prefetch)
        connection.call(2, "basic.consume", queue=queue)
        expected = prefetch or 5
        assert bodies(connection, 2, expected) == numbers(*range(expected))
    left = [connection.declare(1, queue, passive=True).message_count for queue in queues]
    assert left == [3, 2, 0]
    connection.send(raw.method(2, "basic.ack", delivery_tag=1))
    assert bodies(connection, 2, 1) == numbers(2)


def test_b56_prefetch_of_the_channel(connection: raw.Connection, name: str) -> None:
    """56: global=true bounds all consumers of the channel together, at once."""
    connection.declare(1, name, exclusive=True)
    fill(connection, name, 6)
    connection.open_channel(2)
    connection.call(2, "basic.qos", prefetch_count=3, **{"global": True})
    connection.call(2, "basic.consume", queue=name)
    assert bodies(connection, 2, 3) == numbers(0, 1, 2)
    assert connection.declare(1, name, passive=True).message_count == 3
    connection.send(raw.method(2, "basic.ack", delivery_tag=2, multiple=True))
    assert bodies(connection, 2, 2) == numbers(3, 4)
    assert connection.declare(1, name, passive=True).message_count == 1


def test_b56_auto_ack_ignores_prefetch(connection: raw.Connection, name: str) -> None:
    """56: and get does as well."""
    connection.declare(1, name, exclusive=True)
    fill(connection, name, 10)
    connection.open_channel(2)
    connection.call(2, "basic.qos", prefetch_count=1)
    assert connection.get(2, name, no_ack=False) is not None
    assert connection.get(2, name, no_ack=False) is not None
    connection.call(2, "basic.consume", queue=name, no_ack=True)
    assert bodies(connection, 2, 8) == numbers(*range(2, 10))


# -- 57, 58: get and tags


def test_b57_get_from_an_empty_queue(connection: raw.Connection, name: str) -> None:
    """57: cluster_id is empty."""
    connection.declare(1, name, exclusive=True)
    connection.send(raw.method(1, "basic.get", queue=name))
    assert connection.expect(1, "basic.get-empty").fields == {"cluster_id": ""}


def test_b57_get_from_a_stream_is_540(connection: raw.Connection, name: str) -> None:
    """57: a stream has no head to take from."""
    arguments = {"x-queue-type": "stream"}
    connection.declare(1, name, durable=True, arguments=arguments)
    connection.send(raw.method(1, "basic.get", queue=name))
    connection.expect_connection_close(540, "NOT_IMPLEMENTED - ", (60, 70))


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_b57_get_beside_a_single_active_consumer_is_405(
    connection: raw.Connection, name: str, kind: str, broker: Broker
) -> None:
    """57: it would break the order; RabbitMQ 3.10 refuses it of quorum queues only."""
    arguments = {"x-single-active-consumer": True, "x-queue-type": kind}
    connection.declare(1, name, durable=True, arguments=arguments)
    connection.send(raw.method(1, "basic.get", queue=name))
    if broker.is_rabbitmq and kind == "classic":
        connection.expect(1, "basic.get-empty")
    else:
        text = (
            f"RESOURCE_LOCKED - cannot obtain access to locked queue '{name}' in vhost '/'. "
            f"basic.get operations are not supported by {kind} queues with single active consumer"
        )
        connection.expect_channel_close(1, 405, text, (60, 70))
        connection.open_channel(1)
    connection.call(1, "queue.delete", queue=name)


@pytest.mark.parametrize("method", ["basic.ack", "basic.nack", "basic.reject"])
@pytest.mark.parametrize("tag", [0, 1, 2**63])
def test_b58_unknown_tag_is_406(connection: raw.Connection, method: str, tag: int) -> None:
    """58: nothing was delivered with it."""
    connection.send(raw.method(1, method, delivery_tag=tag))
    text = f"PRECONDITION_FAILED - unknown delivery tag {tag}"
    connection.expect_channel_close(1, 406, text)
    connection.open_channel(1)
    connection.sync(1)


def test_b58_second_ack_is_406(connection: raw.Connection, name: str) -> None:
    """58: the tag is spent; the other un-acked messages come back with the channel."""
    connection.declare(1, name, exclusive=True)
    fill(connection, name, 2)
    connection.open_channel(2)
    connection.call(2, "basic.consume", queue=name)
    bodies(connection, 2, 2)
    connection.send(raw.method(2, "basic.ack", delivery_tag=1) * 2)
    connection.expect_channel_close(2, 406, "PRECONDITION_FAILED - unknown delivery tag 1")
    assert connection.drain(1, name) == numbers(1)


def test_b58_tag_0_with_multiple_is_all(connection: raw.Connection, name: str) -> None:
    """58: also when there is none."""
    connection.declare(1, name, exclusive=True)
    fill(connection, name, 3)
    connection.send(raw.method(1, "basic.ack", delivery_tag=0, multiple=True))
    for _ in range(3):
        assert connection.get(1, name, no_ack=False) is not None
    connection.send(raw.method(1, "basic.ack", delivery_tag=0, multiple=True))
    connection.send(raw.method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True))
    connection.call(1, "basic.recover", requeue=True)
    assert connection.get(1, name) is None


def test_b58_multiple_is_up_to_and_with_the_tag(connection: raw.Connection, name: str) -> None:
    """58: in the channel's own numbers, over all its queues."""
    other = name + "-other"
    for queue in (name, other):
        connection.declare(1, queue, exclusive=True)
        fill(connection, queue, 2)
    for queue in (name, other, name, other):
        assert connection.get(1, queue, no_ack=False) is not None
    connection.send(raw.method(1, "basic.ack", delivery_tag=3, multiple=True))
    connection.call(1, "basic.recover", requeue=True)
    assert connection.drain(1, name) == []
    assert connection.drain(1, other) == numbers(1)


def test_b58_ack_on_another_channel_is_406(connection: raw.Connection, name: str) -> None:
    """58: tags belong to a channel."""
    connection.declare(1, name, exclusive=True)
    fill(connection, name, 1)
    connection.open_channel(2)
    got = connection.get(2, name, no_ack=False)
    assert got is not None
    connection.send(raw.method(1, "basic.ack", delivery_tag=got.delivery_tag))
    connection.expect_channel_close(1, 406, "PRECONDITION_FAILED - unknown delivery tag")
    connection.send(raw.method(2, "basic.ack", delivery_tag=got.delivery_tag))
    connection.sync(2)


def test_b58_no_ack_deliveries_cannot_be_acked(connection: raw.Connection, name: str) -> None:
    """58: their tags count, but there is nothing to ack."""
    connection.declare(1, name, exclusive=True)
    fill(connection, name, 1)
    got = connection.get(1, name, no_ack=True)
    assert got is not None
    connection.send(raw.method(1, "basic.ack", delivery_tag=got.delivery_tag))
    connection.expect_channel_close(1, 406, "PRECONDITION_FAILED - unknown delivery tag 1")


# -- 59, 60: requeue, close and recover


@pytest.mark.parametrize("method", ["basic.reject", "basic.nack"])
def test_b59_requeue_goes_back_to_its_place(
    connection: raw.Connection, name: str, method: str
) -> None:
    """59: in front of what came later, with redelivered set; without requeue it is dropped."""
    connection.declare(1, name, exclusive=True)
    fill(connection, name, 4)
    held = [connection.get(1, name, no_ack=False) for _ in range(3)]
    assert all(held)
    connection.send(
        raw.method(1, method, delivery_tag=2, requeue=True),
        raw.method(1, method, delivery_tag=1, requeue=True),
        raw.method(1, method, delivery_tag=3, requeue=False),
    )
    got = [connection.get(1, name) for _ in range(3)]
    assert [(one.body, one.redelivered) for one in got if one] == [
        (b"0", True), (b"1", True), (b"3", False),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["channel", "connection", "socket"])
def test_b59_closing_requeues_in_the_original_order(client: Client, name: str, how: str) -> None:
    """59: before new ones, redelivered."""
    owner, taker = client(), client()
    owner.declare(1, name)
    fill(owner, name, 4)
    for _ in range(3):
        assert taker.get(1, name, no_ack=False) is not None
    taker.send(raw.method(1, "basic.ack", delivery_tag=2))
    taker.sync(1)
    if how == "channel":
        taker.call(1, "channel.close", code=200)
    elif how == "connection":
        taker.close()
    else:
        taker.socket.close()
    fill(owner, name, 1)
    while owner.declare(1, name, passive=True).message_count < 4:
        owner.sync(1)
    owner.call(1, "basic.consume", queue=name, no_ack=True)
    got = [owner.expect(1, "basic.deliver") for _ in range(4)]
    assert [(one.body, one.redelivered) for one in got] == [
        (b"0", True), (b"2", True), (b"3", False), (b"0", False),
    ]  # fmt: skip
    owner.call(1, "queue.delete", queue=name)


def test_b59_requeued_message_goes_to_a_waiting_consumer(
    connection: raw.Connection, name: str
) -> None:
    """59: a consumer that has room takes it at once."""
    connection.declare(1, name, exclusive=True)
    connection.open_channel(2)
    fill(connection, name, 1)
    got = connection.get(1, name, no_ack=False)
    assert got is not None
    connection.call(2, "basic.consume", queue=name)
    connection.send(raw.method(1, "basic.nack", delivery_tag=1, requeue=True))
    deliver = connection.expect(2, "basic.deliver")
    assert deliver.redelivered


@pytest.mark.parametrize("method", ["basic.recover", "basic.recover-async"])
def test_b60_recover_requeues(connection: raw.Connection, name: str, method: str) -> None:
    """60: in order; redelivered, to others if they come first."""
    connection.declare(1, name, exclusive=True)
    fill(connection, name, 3)
    for _ in range(2):
        assert connection.get(1, name, no_ack=False) is not None
    connection.send(raw.method(1, method, requeue=True))
    if method == "basic.recover":
        connection.expect(1, "basic.recover-ok")
    connection.open_channel(2)
    got = [connection.get(2, name) for _ in range(3)]
    assert [(one.body, one.redelivered) for one in got if one] == [
        (b"0", True), (b"1", True), (b"2", False),
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["basic.recover", "basic.recover-async"])
def test_b60_recover_without_requeue_is_540(connection: raw.Connection, method: str) -> None:
    """60: RabbitMQ has only the requeueing kind."""
    connection.send(raw.method(1, method, requeue=False))
    connection.expect_connection_close(540, "NOT_IMPLEMENTED - requeue=false")


def test_no_local_has_no_effect(connection: raw.Connection, name: str) -> None:
    """RabbitMQ ignores it, and so do we: a consumer gets what its own connection published."""
    connection.declare(1, name, exclusive=True)
    connection.call(1, "basic.consume", queue=name, no_local=True)
    connection.send(raw.publish(1, "", name, b"mine"))
    assert bodies(connection, 1, 1) == [b"mine"]


def test_channel_flow(connection: raw.Connection) -> None:
    """Section 1.5.3: active=true is confirmed; active=false is 540 as in RabbitMQ."""
    assert connection.call(1, "channel.flow", active=True).active is True
    connection.send(raw.method(1, "channel.flow", active=False))
    connection.expect_connection_close(540, "NOT_IMPLEMENTED - active=false", (20, 20))
