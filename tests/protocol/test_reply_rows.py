"""Behaviour 65: direct reply-to, `amq.rabbitmq.reply-to`."""

from __future__ import annotations

from typing import Any

import pytest

from support.brokers.brokers import Broker, Client
from support.wire import raw
from support.wire.raw import Connection

PUBLISH = (60, 40)
CONSUME = (60, 20)
REPLY_TO = "amq.rabbitmq.reply-to"


def consume_replies(connection: Connection, channel: int = 1, tag: str = "replies") -> None:
    """Wait for replies."""
    connection.call(channel, "basic.consume", queue=REPLY_TO, consumer_tag=tag, no_ack=True)


def request(connection: Connection, queue: str, channel: int = 1, **props: Any) -> raw.Method:
    """Send a request to `queue` of the same connection and take it out of there."""
    connection.send(raw.publish(channel, "", queue, b"request", reply_to=REPLY_TO, **props))
    got = connection.get(channel, queue)
    assert got is not None
    return got


def address_of(got: raw.Method) -> str:
    """The reply address in a request."""
    address: str = raw.decode_properties(got.properties)["reply_to"]
    assert address.startswith(REPLY_TO + ".")
    return address


@pytest.fixture
def queue(connection: Connection, name: str) -> str:
    """A queue for requests."""
    connection.declare(1, name, exclusive=True)
    return name


@pytest.fixture
def address(connection: Connection, queue: str) -> str:
    """The reply address of channel 1."""
    consume_replies(connection)
    return address_of(request(connection, queue))


# -- a request and its reply


def test_b65_a_reply_comes_straight_to_the_channel(
    connection: Connection, client: Client, queue: str
) -> None:
    """65: reply_to is rewritten, all else stays; the answer is a delivery of the consumer."""
    consume_replies(connection)
    props: dict[str, Any] = {
        "correlation_id": "c1",
        "headers": {"h": 1},
        "app_id": "me",
        "message_id": "m",
    }
    got = request(connection, queue, **props)
    address = address_of(got)
    assert raw.decode_properties(got.properties) == props | {"reply_to": address}
    server = client()
    server.send(raw.publish(1, "", address, b"reply", correlation_id="c1", delivery_mode=2))
    reply = connection.expect(1, "basic.deliver")
    assert (reply.consumer_tag, reply.exchange, reply.routing_key) == ("replies", "", address)
    assert (reply.body, reply.redelivered) == (b"reply", False)
    assert raw.decode_properties(reply.properties) == {"correlation_id": "c1", "delivery_mode": 2}


def test_b65_an_address_stays_the_channels(connection: Connection, queue: str) -> None:
    """65: the same for all requests of a channel, another for each channel."""
    consume_replies(connection)
    connection.open_channel(2)
    consume_replies(connection, 2)
    first, second = (address_of(request(connection, queue)) for _ in range(2))
    other = address_of(request(connection, queue, 2))
    assert first == second != other
    connection.send(raw.publish(1, "", other, b"b"), raw.publish(2, "", first, b"a"))
    got = {one.channel: one.body for one in (connection.next_method() for _ in range(2))}
    assert got == {1: b"a", 2: b"b"}


def test_b65_replies_are_ordered_and_need_no_prefetch(
    connection: Connection, client: Client, address: str
) -> None:
    """65: a consumer that never acks gets them all."""
    connection.call(1, "basic.qos", prefetch_count=1, **{"global": True})
    server = client()
    server.send(*[raw.publish(1, "", address, b"%d" % number) for number in range(20)])
    got = [connection.expect(1, "basic.deliver").body for _ in range(20)]
    assert got == [b"%d" % number for number in range(20)]


def test_b65_a_large_reply(whole: Client, name: str) -> None:
    """65: in frames, as any delivery."""
    connection, server = whole(), whole()
    connection.declare(1, name, exclusive=True)
    consume_replies(connection)
    address = address_of(request(connection, name))
    body = bytes(range(256)) * 4096
    server.send(raw.publish(1, "", address, body))
    assert connection.expect(1, "basic.deliver").body == body


def test_b65_a_reply_is_confirmed(connection: Connection, client: Client, address: str) -> None:
    """65: at once, for nothing is stored, persistent or not."""
    server = client()
    server.call(1, "confirm.select")
    server.send(raw.publish(1, "", address, b"a", delivery_mode=2))
    assert server.expect(1, "basic.ack").delivery_tag == 1
    assert connection.expect(1, "basic.deliver").body == b"a"


def test_b65_a_reply_is_routed(
    connection: Connection, client: Client, address: str, broker: Broker
) -> None:
    """65: mandatory is content with a requester that is there, as in RabbitMQ from 4.2 on."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ 3.10 delivers and returns a mandatory reply")
    server = client()
    server.send(raw.publish(1, "", address, b"a", mandatory=True))
    server.sync(1)
    assert connection.expect(1, "basic.deliver").body == b"a"


def test_b65_a_copy_may_go_to_a_requester(
    connection: Connection, client: Client, queue: str, address: str
) -> None:
    """65: CC and BCC name addresses too."""
    server = client()
    server.send(
        raw.publish(1, "", address, b"a", headers={"CC": [address]}),
        raw.publish(1, "", "nowhere", b"b", headers={"BCC": [address]}),
    )
    assert [connection.expect(1, "basic.deliver").body for _ in range(2)] == [b"a", b"b"]


def test_b65_a_reply_in_a_transaction_comes_with_the_commit(
    connection: Connection, client: Client, address: str, broker: Broker
) -> None:
    """65: RabbitMQ 3.10 delivers it at the publish, and a rollback changes nothing."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ 3.10 delivers replies before the commit")
    server = client()
    server.call(1, "tx.select")
    server.send(raw.publish(1, "", address, b"undone"))
    server.call(1, "tx.rollback")
    server.send(raw.publish(1, "", address, b"done"))
    server.call(1, "tx.commit")
    assert connection.expect(1, "basic.deliver").body == b"done"
    connection.sync(1)


def test_b65_a_requester_in_a_transaction(
    connection: Connection, queue: str, client: Client
) -> None:
    """65: the address is written when the request is published."""
    connection.call(1, "tx.select")
    consume_replies(connection)
    connection.send(raw.publish(1, "", queue, b"r", reply_to=REPLY_TO))
    connection.call(1, "tx.commit")
    got = connection.get(1, queue)
    assert got is not None
    client().send(raw.publish(1, "", address_of(got), b"reply"))
    assert connection.expect(1, "basic.deliver").body == b"reply"


def test_b65_any_exchange_takes_a_request(connection: Connection, queue: str) -> None:
    """65: not only the default one."""
    consume_replies(connection)
    connection.call(1, "queue.bind", queue=queue, exchange="amq.topic", routing_key="rpc.#")
    connection.send(raw.publish(1, "amq.topic", "rpc.add", b"r", reply_to=REPLY_TO))
    got = connection.get(1, queue)
    assert got is not None
    connection.send(raw.publish(1, "", address_of(got), b"reply"))
    assert connection.expect(1, "basic.deliver").body == b"reply"


@pytest.mark.parametrize("reply_to", ["answers", "", REPLY_TO + ".x", "amq.rabbitmq.reply-t"])
def test_b65_another_reply_to_is_left_alone(
    connection: Connection, queue: str, reply_to: str
) -> None:
    """65: only the very name asks for an address; no consumer is needed."""
    connection.send(raw.publish(1, "", queue, b"r", reply_to=reply_to))
    got = connection.get(1, queue)
    assert got is not None
    assert raw.decode_properties(got.properties) == {"reply_to": reply_to}


# -- refusals


def test_b65_a_consumer_of_replies_cannot_ack(connection: Connection) -> None:
    """65: replies are not kept, so there is nothing to ack."""
    connection.send(raw.method(1, "basic.consume", queue=REPLY_TO))
    text = "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    connection.expect_channel_close(1, 406, text, CONSUME)


def test_b65_one_consumer_of_replies_for_a_channel(connection: Connection) -> None:
    """65: a second one is refused; after a cancel it is the first again."""
    consume_replies(connection)
    connection.call(1, "basic.cancel", consumer_tag="replies")
    consume_replies(connection, tag="again")
    connection.send(raw.method(1, "basic.consume", queue=REPLY_TO, no_ack=True, consumer_tag="o"))
    text = "PRECONDITION_FAILED - reply consumer already set"
    connection.expect_channel_close(1, 406, text, CONSUME)


@pytest.mark.parametrize("cancel", [False, True])
def test_b65_a_request_needs_a_consumer(connection: Connection, queue: str, cancel: bool) -> None:
    """65: consume first; after a cancel it is missing again."""
    if cancel:
        consume_replies(connection)
        connection.call(1, "basic.cancel", consumer_tag="replies")
    connection.send(raw.publish(1, "", queue, b"r", reply_to=REPLY_TO))
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    connection.expect_channel_close(1, 406, text, PUBLISH)


def test_b65_the_consumer_is_the_channels_not_the_connections(
    connection: Connection, queue: str
) -> None:
    """65: another channel's does not help."""
    connection.open_channel(2)
    consume_replies(connection, 2)
    connection.send(raw.publish(1, "", queue, b"r", reply_to=REPLY_TO))
    connection.expect_channel_close(1, 406, "fast reply consumer does not exist", PUBLISH)


def test_b65_what_is_wrong_with_a_request_is_told_in_order(
    connection: Connection, name: str
) -> None:
    """65: the exchange, then reply_to, then the rest."""
    wrong: dict[str, Any] = {"reply_to": REPLY_TO, "user_id": "o", "expiration": "abc"}
    connection.send(raw.publish(1, name, "", b"r", **wrong))
    connection.expect_channel_close(1, 404, "no exchange", PUBLISH)
    connection.open_channel(1)
    connection.send(raw.publish(1, "", name, b"r", **wrong))
    connection.expect_channel_close(1, 406, "fast reply consumer does not exist", PUBLISH)


# -- addresses that lead nowhere


def spoil(address: str) -> list[str]:
    """Addresses that nobody has."""
    last = "A" if address[-1] != "A" else "B"
    return [
        REPLY_TO, REPLY_TO + ".", address[:-1], address + "A", address[:-1] + last,
        address.swapcase(), REPLY_TO + "." + "A" * 22,
    ]  # fmt: skip


def test_b65_a_forged_address_goes_nowhere(
    connection: Connection, client: Client, address: str
) -> None:
    """65: mandatory is returned, else it is dropped; confirmed both ways."""
    forged = spoil(address)
    server = client()
    server.call(1, "confirm.select")
    for number, key in enumerate(forged):
        server.send(raw.publish(1, "", key, b"f", mandatory=True))
        assert server.expect(1, "basic.return").routing_key == key
        assert server.expect(1, "basic.ack").delivery_tag == 2 * number + 1
        server.send(raw.publish(1, "", key, b"f"))
        assert server.expect(1, "basic.ack").delivery_tag == 2 * number + 2
    connection.sync(1)


@pytest.mark.parametrize("end", ["cancel", "channel", "connection"])
def test_b65_a_stale_address_goes_nowhere(
    client: Client, connection: Connection, name: str, end: str
) -> None:
    """65: from the end of the consumer on, also where the route was remembered."""
    server = connection
    server.declare(1, name, durable=True)
    requester = client()
    consume_replies(requester)
    address = address_of(request(requester, name))
    server.send(raw.publish(1, "", address, b"alive", mandatory=False))
    assert requester.expect(1, "basic.deliver").body == b"alive"
    if end == "cancel":
        requester.call(1, "basic.cancel", consumer_tag="replies")
        consume_replies(requester, tag="again")
    elif end == "channel":
        requester.call(1, "channel.close", code=200)
        requester.open_channel(1)
        consume_replies(requester)
    else:
        requester.close()
    server.send(raw.publish(1, "", address, b"stale"))
    server.send(raw.publish(1, "", address, b"stale", mandatory=True))
    assert server.expect(1, "basic.return").routing_key == address
    if end != "connection":
        requester.sync(1)
        assert address_of(request(requester, name)) != address
    server.call(1, "queue.delete", queue=name)


def test_b65_an_address_is_one_of_the_default_exchange(
    connection: Connection, client: Client, address: str
) -> None:
    """65: as a routing key of another exchange it is a key like any."""
    server = client()
    server.send(raw.publish(1, "amq.direct", address, b"x", mandatory=True))
    assert server.expect(1, "basic.return").exchange == "amq.direct"
    connection.sync(1)


# -- an address is no queue


@pytest.mark.parametrize("passive", [True, False])
def test_b65_a_declare_asks_whether_the_requester_is_there(
    connection: Connection, client: Client, address: str, passive: bool
) -> None:
    """65: declare-ok with one consumer while it is, passive or not; 404 afterwards."""
    server = client()
    got = server.declare(1, address, passive=passive)
    assert (got.queue, got.message_count, got.consumer_count) == (address, 0, 1)
    connection.call(1, "basic.cancel", consumer_tag="replies")
    server.send(raw.method(1, "queue.declare", queue=address, passive=passive))
    text = f"NOT_FOUND - no queue '{address}' in vhost '/'"
    server.expect_channel_close(1, 404, text, (50, 10))


def test_b65_the_name_itself_is_always_there(connection: Connection) -> None:
    """65: clients ask before they consume."""
    got = connection.declare(1, REPLY_TO, passive=True)
    assert (got.queue, got.message_count, got.consumer_count) == (REPLY_TO, 0, 1)


@pytest.mark.parametrize("own", [True, False])
def test_b65_an_address_cannot_be_bound(
    connection: Connection, address: str, own: bool, broker: Broker
) -> None:
    """65: 403; RabbitMQ 3.10 says 404."""
    name = address if own else REPLY_TO
    connection.send(raw.method(1, "queue.bind", queue=name, exchange="amq.fanout"))
    connection.expect_channel_close(1, 404 if broker.is_rabbitmq else 403, "", (50, 20))


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("method", "ids"), [("basic.get", (60, 70)), ("queue.purge", (50, 30)), ("consume", CONSUME)]
)
def test_b65_an_address_cannot_be_read(
    connection: Connection, address: str, method: str, ids: tuple[int, int], own: bool
) -> None:
    """65: 404 for its owner and for others; who knows it may only write to it."""
    name = address if own else REPLY_TO + ".x"
    if method == "consume":
        connection.send(raw.method(1, "basic.consume", queue=name, no_ack=True))
    else:
        connection.send(raw.method(1, method, queue=name))
    connection.expect_channel_close(1, 404, f"NOT_FOUND - no queue '{name}' in vhost '/'", ids)


def test_b65_a_delete_of_an_address_does_nothing(
    connection: Connection, client: Client, address: str
) -> None:
    """65: delete-ok 0, as for what is missing; the requester goes on."""
    server = client()
    for name in (address, REPLY_TO):
        assert server.call(1, "queue.delete", queue=name).message_count == 0
    server.send(raw.publish(1, "", address, b"a"))
    assert connection.expect(1, "basic.deliver").body == b"a"
