"""The blocking shell against a running broker: every operation, and what goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from leveret.client import (
    BasicProperties,
    Closed,
    ConnectionInUse,
    ConsumerCancelled,
    Message,
    Returned,
    ReturnedMessage,
    Timestamp,
    blocking,
    parse_uri,
)
from leveret.client.uri import Parameters
from leveret.errors import (
    AccessRefusedHard,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from support.brokers.brokers import unique

SECONDS = 60.0
QUIET_SECONDS = 0.2


@pytest.fixture
def connection(broker_uri: str) -> Iterator[blocking.Connection]:
    """An open connection."""
    with blocking.connect(broker_uri, connection_name="test") as opened:
        yield opened


@pytest.fixture
def channel(connection: blocking.Connection) -> blocking.Channel:
    """An open channel."""
    return connection.channel()


@pytest.fixture
def queue(connection: blocking.Connection) -> str:
    """An exclusive queue, declared on a channel of its own."""
    return connection.channel().queue_declare(exclusive=True).queue


def fill(channel: blocking.Channel, queue: str, *bodies: bytes) -> None:
    """Publish bodies to a queue, confirmed."""
    channel.confirm_select()
    for one in bodies:
        channel.publish(one, routing_key=queue)


def bodies(messages: Iterable[Message]) -> list[bytes]:
    """Return the bodies of messages."""
    return [message.body for message in messages]


def taken(consumer: blocking.Consumer, count: int) -> list[Message]:
    """Wait for `count` messages however long they take, and for what comes soon after them."""
    found: list[Message] = []
    while True:
        consumer.inactivity_timeout = SECONDS if len(found) < count else QUIET_SECONDS
        message = next(consumer, None)
        if message is None:
            return found
        found.append(message)


# -- connections -----------------------------------------------------------------------------------


def test_a_connection_opens_and_closes(broker_uri: str) -> None:
    connection = blocking.connect(broker_uri)
    states = [connection.is_open]
    assert connection.server_properties["product"]
    assert "guest:guest" not in repr(connection)
    for _ in range(2):
        connection.close()
        states.append(connection.is_open)
    assert states == [True, False, False]
    assert connection.error is None
    with pytest.raises(Closed):
        connection.channel()
    with pytest.raises(Closed):
        connection.process()


def test_a_wrong_password(broker_uri: str) -> None:
    """Behaviour 3 (refused logins)."""
    right = parse_uri(broker_uri)
    wrong = Parameters(right.host, right.port, "nobody", "wrong")
    with pytest.raises(AccessRefusedHard, match="403 ACCESS_REFUSED"):
        blocking.connect(wrong)


def test_a_missing_vhost(broker_uri: str) -> None:
    """Behaviour 6 (unknown vhost)."""
    right = parse_uri(broker_uri)
    with pytest.raises(NotAllowed, match="530 NOT_ALLOWED"):
        blocking.connect(Parameters(right.host, right.port, vhost="nowhere"))


def test_nobody_listens() -> None:
    with pytest.raises(ConnectionRefusedError):
        blocking.connect("amqp://127.0.0.1:1")


def test_channels_have_the_lowest_free_numbers(connection: blocking.Connection) -> None:
    """Behaviour 15 (dropped until close-ok)."""
    numbers = []
    for _ in range(3):
        with connection.channel() as one, connection.channel() as two:
            numbers.append((one.number, two.number))
    assert numbers == [(1, 2)] * 3


# -- queues and exchanges --------------------------------------------------------------------------


def test_the_life_of_a_queue(channel: blocking.Channel, name: str) -> None:
    arguments = {"x-expires": 60_000}
    assert channel.queue_declare(name, arguments=arguments) == (name, 0, 0)
    fill(channel, name, b"1", b"2", b"3")
    declared = channel.queue_declare(name, passive=True)
    assert (declared.queue, declared.message_count, declared.consumer_count) == (name, 3, 0)
    assert channel.queue_purge(name) == 3
    fill(channel, name, b"4")
    assert channel.queue_delete(name) == 1
    assert channel.queue_delete(name) == 0


def test_a_missing_queue_closes_the_channel_and_each_later_use_says_so(
    connection: blocking.Connection, channel: blocking.Channel, name: str
) -> None:
    """Behaviours 34 (delete when missing) and 47 (passive declare, delete, purge)."""
    for _ in range(2):
        with pytest.raises(NotFound, match=f"404 NOT_FOUND - no queue '{name}' in vhost '/'"):
            channel.queue_declare(name, passive=True)
    assert isinstance(channel.error, NotFound)
    with pytest.raises(NotFound):
        channel.publish(b"", routing_key=name)
    assert connection.channel().is_open


def test_a_queue_in_use_is_not_deleted(channel: blocking.Channel, queue: str) -> None:
    channel.consume(queue)
    with pytest.raises(PreconditionFailed):
        channel.queue_delete(queue, if_unused=True)


def test_another_connections_queue(channel: blocking.Channel, broker_uri: str) -> None:
    """Behaviour 44 (exclusive queue)."""
    mine = channel.queue_declare(exclusive=True).queue
    with blocking.connect(broker_uri) as other, pytest.raises(ResourceLocked, match="405"):
        other.channel().queue_declare(mine, passive=True)


def test_exchanges_and_bindings(channel: blocking.Channel, queue: str, name: str) -> None:
    channel.exchange_declare(name, "topic", auto_delete=False)
    channel.exchange_declare(name, "topic", passive=True)
    channel.exchange_declare(f"{name}-from", "fanout")
    channel.exchange_bind(name, f"{name}-from", "unused")
    channel.queue_bind(queue, name, "a.#")
    channel.confirm_select()
    channel.publish(b"1", name, "a.b")
    channel.publish(b"2", f"{name}-from", "a.c")
    channel.publish(b"3", name, "b.a")
    channel.exchange_unbind(name, f"{name}-from", "unused")
    channel.publish(b"4", f"{name}-from", "a.c")
    channel.queue_unbind(queue, name, "a.#")
    channel.publish(b"5", name, "a.b")
    assert bodies(taken(channel.consume(queue), 2)) == [b"1", b"2"]
    channel.exchange_delete(f"{name}-from")
    channel.exchange_delete(name, if_unused=True)


# -- publishing ------------------------------------------------------------------------------------


def test_every_property_comes_back(channel: blocking.Channel, queue: str) -> None:
    headers: dict[str, object] = {
        "text": "ä", "bytes": b"\xff", "int": -1, "long": 2**40, "float": 1.5, "true": True,
        "none": None, "list": [1, "a", {"b": 2}], "table": {"x": {"y": False}},
        "decimal": Decimal("1.25"), "time": Timestamp(1_700_000_000),
    }  # fmt: skip
    sent = BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers=headers,
        delivery_mode=2,
        priority=5,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    channel.confirm_select()
    channel.publish(b"body", routing_key=queue, properties=sent)
    got = channel.get(queue)
    assert got is not None
    assert got.properties == sent
    assert got.headers == headers | {"time": datetime.fromtimestamp(1_700_000_000, UTC)}


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 3_000_000])
def test_bodies_of_any_size(channel: blocking.Channel, queue: str, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    fill(channel, queue, body)
    got = channel.get(queue, no_ack=True)
    assert got is not None
    assert got.body == body


def test_a_body_may_be_any_bytes_and_nothing_else(channel: blocking.Channel, queue: str) -> None:
    channel.publish(bytearray(b"ab"), routing_key=queue)
    channel.publish(memoryview(b"cd"), routing_key=queue)
    with pytest.raises(TypeError, match="body must be bytes, not str"):
        channel.publish("ef", routing_key=queue)  # type: ignore[arg-type]
    assert bodies(taken(channel.consume(queue), 2)) == [b"ab", b"cd"]


def test_a_mandatory_message_that_nobody_takes(channel: blocking.Channel, name: str) -> None:
    """Behaviour 24 (return before confirm)."""
    channel.confirm_select()
    with pytest.raises(Returned) as caught:
        channel.publish(b"body", "", name, BasicProperties(type="t"), mandatory=True)
    message = caught.value.message
    assert (message.reply_code, message.exchange, message.routing_key) == (312, "", name)
    assert (message.body, message.properties.type) == (b"body", "t")
    channel.publish(b"body", "", name)


def test_a_window_of_publishes(channel: blocking.Channel, queue: str, name: str) -> None:
    with pytest.raises(ValueError, match="not in confirm mode"):
        channel.wait_for_confirms()
    channel.confirm_select()
    sequences = [channel.publish_nowait(b"x", routing_key=queue) for _ in range(1000)]
    assert sequences == list(range(1, 1001))
    assert channel.unconfirmed_count > 0
    channel.wait_for_confirms()
    assert channel.unconfirmed_count == 0
    channel.publish_nowait(b"y", routing_key=name, mandatory=True)
    channel.publish_nowait(b"z", routing_key=queue, mandatory=True)
    with pytest.raises(Returned, match="there is no queue"):
        channel.wait_for_confirms()
    channel.wait_for_confirms()
    assert channel.queue_declare(queue, passive=True).message_count == 1001


def test_returns_without_confirm_mode(
    connection: blocking.Connection, channel: blocking.Channel, name: str
) -> None:
    returned: list[ReturnedMessage] = []
    channel.on_return(returned.append)
    channel.publish(b"body", routing_key=name, mandatory=True)
    channel.qos(1)  # its reply comes after the return
    connection.process()
    assert [message.routing_key for message in returned] == [name]


def test_a_missing_exchange_is_told_by_the_next_call(channel: blocking.Channel, name: str) -> None:
    """Behaviour 18 (missing exchange)."""
    channel.publish(b"body", exchange=name)
    with pytest.raises(NotFound, match=f"no exchange '{name}' in vhost '/'"):
        channel.qos(1)


def test_a_missing_exchange_ends_a_confirmed_publish(channel: blocking.Channel, name: str) -> None:
    channel.confirm_select()
    with pytest.raises(NotFound, match=f"no exchange '{name}'"):
        channel.publish(b"body", exchange=name)
    with pytest.raises(NotFound):
        channel.wait_for_confirms()


def test_transactions(channel: blocking.Channel, queue: str) -> None:
    """Behaviour 29 (errors in a transaction)."""
    channel.tx_select()
    channel.publish(b"1", routing_key=queue)
    channel.tx_rollback()
    channel.publish(b"2", routing_key=queue)
    assert channel.get(queue) is None
    channel.tx_commit()
    got = channel.get(queue, no_ack=True)
    assert got is not None
    assert got.body == b"2"
    with pytest.raises(PreconditionFailed):
        channel.confirm_select()


# -- consuming -------------------------------------------------------------------------------------


def test_get(channel: blocking.Channel, queue: str) -> None:
    assert channel.get(queue) is None
    fill(channel, queue, b"1", b"2")
    got = channel.get(queue)
    assert got is not None
    assert (got.body, got.message_count, got.redelivered) == (b"1", 1, False)
    got.nack(requeue=True)
    got = channel.get(queue)
    assert got is not None
    assert (got.body, got.redelivered) == (b"1", True)
    got.reject(requeue=False)
    got = channel.get(queue)
    assert got is not None
    got.ack()
    assert channel.get(queue) is None


def test_an_iteration_ends_when_it_is_quiet_and_can_be_resumed(
    channel: blocking.Channel, queue: str
) -> None:
    fill(channel, queue, b"1", b"2")
    consumer = channel.consume(queue)
    messages = taken(consumer, 2)
    assert bodies(messages) == [b"1", b"2"]
    for message in messages:
        message.ack()
        assert message.consumer_tag == consumer.consumer_tag
        assert message.delivery_tag == int(message.body)
    fill(channel, queue, b"3")
    assert bodies(taken(consumer, 1)) == [b"3"]
    channel.ack(multiple=True)
    assert channel.queue_declare(queue, passive=True).consumer_count == 1


def test_an_own_consumer_tag(channel: blocking.Channel, queue: str) -> None:
    assert channel.consume(queue, consumer_tag="mine").consumer_tag == "mine"


def test_a_consumer_tag_twice_ends_the_connection(
    connection: blocking.Connection, channel: blocking.Channel, queue: str
) -> None:
    """Behaviour 51 (repeated consumer tag)."""
    channel.consume(queue, consumer_tag="mine")
    for _ in range(2):
        with pytest.raises(NotAllowed):
            channel.consume(queue, consumer_tag="mine")
    with pytest.raises(NotAllowed):
        connection.channel()


def test_the_prefetch_limit(channel: blocking.Channel, queue: str) -> None:
    fill(channel, queue, *[b"%d" % number for number in range(10)])
    channel.qos(3)
    consumer = channel.consume(queue)
    assert bodies(taken(consumer, 3)) == [b"0", b"1", b"2"]
    channel.ack(2, multiple=True)
    assert bodies(taken(consumer, 2)) == [b"3", b"4"]


def test_what_is_unacked_comes_again(channel: blocking.Channel, queue: str) -> None:
    """Behaviours 59 (requeue keeps its place) and 60 (recover)."""
    fill(channel, queue, b"1", b"2")
    consumer = channel.consume(queue)
    assert bodies(taken(consumer, 2)) == [b"1", b"2"]
    channel.recover()
    again = taken(consumer, 2)
    assert [(message.body, message.redelivered) for message in again] == [
        (b"1", True),
        (b"2", True),
    ]


def test_cancel_hands_out_what_has_come(channel: blocking.Channel, queue: str) -> None:
    fill(channel, queue, b"1", b"2", b"3")
    consumer = channel.consume(queue, inactivity_timeout=SECONDS)
    assert next(consumer).body == b"1"
    consumer.cancel()
    consumer.cancel()
    fill(channel, queue, b"4")
    assert bodies(consumer) == [b"2", b"3"]


def test_leaving_a_consumer_gives_back_what_was_not_handed_out(
    channel: blocking.Channel, queue: str
) -> None:
    fill(channel, queue, b"1", b"2", b"3")
    with channel.consume(queue) as consumer:
        for message in consumer:
            message.ack()
            break
    assert bodies(taken(channel.consume(queue), 2)) == [b"2", b"3"]


def test_callbacks_run_in_process(
    connection: blocking.Connection, channel: blocking.Channel, queue: str
) -> None:
    seen: list[bytes] = []

    def callback(message: Message) -> None:
        # A callback may call: nothing of another callback runs meanwhile.
        assert channel.queue_declare(queue, passive=True).queue == queue
        seen.append(message.body)
        message.ack()

    channel.consume(queue, callback)
    fill(channel, queue, b"1", b"2")
    assert connection.process(SECONDS) > 0
    while len(seen) < 2:
        connection.process(SECONDS)
    assert seen == [b"1", b"2"]
    assert connection.process(0) == 0


def test_the_broker_cancels(broker_uri: str, name: str) -> None:
    """Behaviour 54 (server cancels); with recovery the consumer would wait for its queue first."""
    with blocking.connect(broker_uri, recover=False) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        consumer = channel.consume(name)
        with blocking.connect(broker_uri) as other:
            other.channel().queue_delete(name)
        for _ in range(2):
            with pytest.raises(ConsumerCancelled, match=consumer.consumer_tag):
                next(consumer)
        consumer.cancel()
        assert channel.is_open


def test_the_broker_cancels_a_consumer_with_a_callback(
    connection: blocking.Connection, channel: blocking.Channel, name: str
) -> None:
    channel.queue_declare(name)
    channel.consume(name, lambda message: message.ack())
    channel.queue_delete(name)
    with pytest.raises(ConsumerCancelled):
        connection.process(SECONDS)
    assert connection.process(0) == 0


def test_messages_that_count_as_acked_are_handed_out_before_the_end_is_told(
    channel: blocking.Channel, name: str
) -> None:
    channel.queue_declare(name)
    fill(channel, name, b"1", b"2")
    consumer = channel.consume(name, no_ack=True)
    channel.queue_delete(name)
    assert [next(consumer).body, next(consumer).body] == [b"1", b"2"]
    with pytest.raises(ConsumerCancelled):
        next(consumer)


def test_the_end_of_the_channel_ends_its_consumers(channel: blocking.Channel, queue: str) -> None:
    fill(channel, queue, b"1", b"2")
    consumer = channel.consume(queue)
    message = next(consumer)
    with pytest.raises(NotFound):
        channel.queue_declare(unique("nowhere"), passive=True)
    with pytest.raises(NotFound):
        next(consumer)
    with pytest.raises(NotFound):
        message.ack()


def test_the_end_by_this_side_ends_an_iteration(
    connection: blocking.Connection, channel: blocking.Channel, queue: str
) -> None:
    consumer = channel.consume(queue)
    connection.close()
    assert list(consumer) == []


# -- what an application gets wrong ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["\udcff", "k" * 256, "ä" * 128])
def test_a_name_that_cannot_be_sent_is_refused_and_harms_nothing(
    channel: blocking.Channel, queue: str, name: str
) -> None:
    fill(channel, queue)
    refused: list[tuple[str, Callable[[], object]]] = [
        ("routing_key", lambda: channel.publish(b"", routing_key=name)),
        ("exchange", lambda: channel.publish_nowait(b"", exchange=name)),
        ("queue", lambda: channel.queue_declare(name)),
        ("queue", lambda: channel.get(name)),
        ("binding_key", lambda: channel.queue_bind(queue, "amq.direct", name)),
        ("exchange_type", lambda: channel.exchange_declare("e", name)),
        ("source", lambda: channel.exchange_bind("e", name)),
        ("consumer_tag", lambda: channel.consume(queue, consumer_tag=name)),
    ]
    for what, call in refused:
        with pytest.raises(ValueError, match=f"^{what} "):
            call()
    channel.publish(b"after", routing_key=queue)
    message = channel.get(queue, no_ack=True)
    assert message is not None
    assert message.body == b"after"


def test_a_name_that_is_no_text_is_named(channel: blocking.Channel) -> None:
    key: Any = b"orders"
    with pytest.raises(TypeError, match=r"^routing_key must be a str, not bytes"):
        channel.publish(b"", routing_key=key)
    with pytest.raises(TypeError, match=r"^queue must be a str, not bytes"):
        channel.queue_declare(key)
    assert channel.is_open


def test_a_second_thread_inside_a_call_is_told_so(connection: blocking.Connection) -> None:
    channel = connection.channel()
    queue = channel.queue_declare(exclusive=True).queue
    inside, leave = threading.Event(), threading.Event()

    def stay(message: Message) -> None:
        inside.set()
        assert leave.wait(SECONDS)
        message.ack()  # a callback may use the connection of the call that it runs in

    channel.consume(queue, stay)
    channel.publish(b"first", routing_key=queue)
    worker = threading.Thread(target=connection.process, args=(SECONDS,), name="the worker")
    worker.start()
    assert inside.wait(SECONDS)
    calls: list[Callable[[], object]] = [
        lambda: channel.publish(b"second", routing_key=queue),
        lambda: channel.publish_nowait(b"second", routing_key=queue),
        lambda: channel.ack(multiple=True),
        lambda: channel.nack(multiple=True),
        lambda: channel.reject(1),
        lambda: channel.get(queue),
        connection.channel,
        connection.process,
        connection.close,
        connection.abort,
        channel.close,
    ]
    for call in calls:
        with pytest.raises(ConnectionInUse, match=r"'MainThread' .* of thread 'the worker'"):
            call()
    leave.set()
    worker.join()
    # In turn any thread may use it, and nothing of the refused calls was sent.
    assert channel.queue_purge(queue) == 0
    channel.close()
