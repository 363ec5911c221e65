"""kombu against a running broker: what Celery does through it."""
# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from amqp.exceptions import AccessRefused, ConsumerCancelled, MessageNacked, NotFound
from kombu import pools
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.message import Message
from kombu.mixins import ConsumerMixin
from kombu.pidbox import Mailbox

from support.brokers.brokers import Broker

#: How long anything may take.
SECONDS_MAX = 120


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    """An open connection."""
    with Connection(broker.uri) as opened:
        opened.connect()
        yield opened


def test_producer_and_consumer(connection: Connection, name: str) -> None:
    exchange = Exchange(name, "topic", auto_delete=True, durable=False)
    queue = Queue(name, exchange, "task.#", exclusive=True)
    sent = [{"id": i, "args": ["ü", None, 1.5]} for i in range(20)]
    got: list[Any] = []

    def on_message(body: Any, message: Message) -> None:
        got.append(body)
        message.ack()

    with connection.Consumer(queue, callbacks=[on_message], prefetch_count=4):
        with connection.Producer() as producer:
            for body in sent:
                producer.publish(
                    body, exchange=exchange, routing_key="task.add", serializer="json",
                    compression="zlib", declare=[queue], retry=True,
                )  # fmt: skip
        while len(got) < len(sent):
            connection.drain_events(timeout=SECONDS_MAX)
    assert got == sent


def test_confirmed_publish(broker: Broker, name: str) -> None:
    options = {"confirm_publish": True}
    with Connection(broker.uri, transport_options=options) as connection:
        queue = Queue(name, Exchange(""), name, durable=True)
        with connection.Producer() as producer:
            for i in range(10):
                producer.publish(i, routing_key=name, declare=[queue], delivery_mode=2)
        bound = queue(connection.default_channel)
        assert bound.queue_declare(passive=True).message_count == 10
        assert bound.delete() == 10


def test_simple_queue(connection: Connection, name: str) -> None:
    queue = connection.SimpleQueue(name, queue_opts={"durable": False, "auto_delete": True})
    queue.put({"a": 1})
    message = queue.get(timeout=SECONDS_MAX)
    assert message.payload == {"a": 1}
    message.requeue()
    again = queue.get(timeout=SECONDS_MAX)
    assert again.delivery_info["redelivered"]
    again.reject()
    with pytest.raises(queue.Empty):
        queue.get(block=False)
    queue.close()


def test_mandatory_return(connection: Connection, name: str) -> None:
    returned: list[str] = []
    with connection.channel() as channel:
        producer = channel.Producer(
            on_return=lambda error, _, key, __: returned.append(f"{error.reply_code} {key}")
        )
        producer.publish("x", routing_key=name, mandatory=True)
        channel.queue_declare(exclusive=True)  # a round trip behind the return
    assert returned == [f"312 {name}"]


def test_missing_queue_is_a_channel_error(connection: Connection, name: str) -> None:
    queue = Queue(name, no_declare=True)
    with pytest.raises(NotFound) as raised:
        queue(connection.default_channel).queue_declare(passive=True)
    assert isinstance(raised.value, connection.channel_errors)
    assert f"NOT_FOUND - no queue '{name}' in vhost '/'" in str(raised.value)


def test_wrong_password(broker: Broker) -> None:
    wrong = Connection(broker.uri.replace("guest:guest", "guest:wrong"))
    with pytest.raises(AccessRefused, match="Login was refused"):
        wrong.connect()


def test_qos_is_chosen_by_the_product(connection: Connection) -> None:
    """RabbitMQ from 3.3 and below 4.0: kombu sets prefetch for each consumer."""
    properties = connection.default_channel.connection.server_properties
    assert properties["product"] == "RabbitMQ"
    version = tuple(map(int, properties["version"].split(".")[:2]))
    assert (3, 3) <= version < (4, 0)
    assert connection.qos_semantics_matches_spec is False


def test_arguments_of_celerys_event_queues(connection: Connection, name: str) -> None:
    """Transient, shared, auto-delete, with expires and TTL: RabbitMQ deprecates such queues."""
    exchange = Exchange(name, "fanout", auto_delete=True, durable=False)
    queue = Queue(
        name, exchange, durable=False, auto_delete=True, expires=60, message_ttl=10, max_priority=5
    )
    got: list[Any] = []
    with connection.Consumer(queue, callbacks=[lambda body, _: got.append(body)], no_ack=True):
        with connection.Producer() as producer:
            producer.publish({"hello": 1}, exchange=exchange)
        while not got:
            connection.drain_events(timeout=SECONDS_MAX)
    assert got == [{"hello": 1}]


def test_pidbox(connection: Connection, name: str) -> None:
    """Celery's remote control: broadcast to a fanout, the answer to a reply queue of one's own."""
    mailbox = Mailbox(name, type="fanout", accept=["json"])(connection)
    node = mailbox.Node("worker", state=None)

    @node.handler  # type: ignore[untyped-decorator]
    def ping(_: object) -> dict[str, str]:
        return {"ok": "pong"}

    consumer = node.listen(channel=connection.default_channel)
    replies = mailbox.call(["worker"], "ping", timeout=SECONDS_MAX)
    consumer.cancel()
    assert replies == [{"worker": {"ok": "pong"}}]


def drained(connection: Connection, queues: list[Queue], count: int) -> list[tuple[str, Any]]:
    """Consume so many messages; return each with the name of its queue, in order."""
    got: list[tuple[str, Any]] = []

    def consumer(queue: Queue) -> Any:
        return connection.Consumer(
            queue, callbacks=[lambda body, _: got.append((queue.name, body))], no_ack=True
        )

    with contextlib.ExitStack() as opened:
        for queue in queues:
            opened.enter_context(consumer(queue))
        while len(got) < count:
            connection.drain_events(timeout=SECONDS_MAX)
    return got


def private(name: str, exchange: Exchange, key: str = "", **values: Any) -> Queue:
    """Return an exclusive queue."""
    return Queue(name, exchange, key, exclusive=True, durable=False, **values)


@pytest.mark.parametrize(
    ("kind", "first", "second", "expected"),
    [
        ("direct", "a.b", "c", [("1", "ab"), ("2", "c")]),
        ("fanout", "", "", [("1", "ab"), ("1", "c"), ("2", "ab"), ("2", "c")]),
        ("topic", "a.*", "#", [("1", "ab"), ("2", "ab"), ("2", "c")]),
    ],
)
def test_exchange_types(
    connection: Connection,
    name: str,
    kind: str,
    first: str,
    second: str,
    expected: list[tuple[str, str]],
) -> None:
    exchange = Exchange(name, kind, auto_delete=True, durable=False)
    queues = [private(f"{name}.1", exchange, first), private(f"{name}.2", exchange, second)]
    with connection.Producer() as producer:
        producer.publish("ab", exchange=exchange, routing_key="a.b", declare=queues)
        producer.publish("c", exchange=exchange, routing_key="c")
    got = drained(connection, queues, len(expected))
    assert sorted(got) == [(f"{name}.{queue}", body) for queue, body in expected]


def test_headers_exchange(connection: Connection, name: str) -> None:
    exchange = Exchange(name, "headers", auto_delete=True, durable=False)
    wanted = {"kind": "a", "size": 1}
    queues = [
        private(f"{name}.{match}", exchange, binding_arguments={"x-match": match} | wanted)
        for match in ("all", "any")
    ]
    with connection.Producer() as producer:
        for body, headers in (("x", wanted), ("y", {"size": 1}), ("z", {"kind": 1})):
            producer.publish(body, exchange=exchange, headers=headers, declare=queues)
    got = drained(connection, queues, 3)
    assert sorted(got) == [(f"{name}.all", "x"), (f"{name}.any", "x"), (f"{name}.any", "y")]


def test_dead_letters_of_a_queue_with_a_ttl(connection: Connection, name: str) -> None:
    dead = private(f"{name}.dead", Exchange(f"{name}.dead", "fanout", auto_delete=True))
    arguments = {"x-dead-letter-exchange": f"{name}.dead", "x-dead-letter-routing-key": "late"}
    queue = private(name, Exchange(""), name, message_ttl=0.2, queue_arguments=arguments)
    got: list[Message] = []
    with connection.Consumer(dead, on_message=got.append, no_ack=True):
        with connection.Producer() as producer:
            producer.publish("x", routing_key=name, declare=[queue], headers={"mine": 1})
        while not got:
            connection.drain_events(timeout=SECONDS_MAX)
    (death,) = got[0].headers["x-death"]
    assert (got[0].payload, got[0].headers["mine"]) == ("x", 1)
    assert got[0].delivery_info["routing_key"] == "late"
    assert (death["queue"], death["reason"], death["count"]) == (name, "expired", 1)
    assert (death["exchange"], death["routing-keys"]) == ("", [name])


def test_priorities(connection: Connection, name: str) -> None:
    queue = private(name, Exchange(""), name, max_priority=5)
    with connection.Producer() as producer:
        for priority in (0, 5, 2, 5, 9):
            producer.publish(priority, routing_key=name, declare=[queue], priority=priority)
    assert [body for _, body in drained(connection, [queue], 5)] == [5, 5, 9, 2, 0]


def test_a_full_queue_refuses(broker: Broker, name: str) -> None:
    """A nack becomes an error for who waits for confirms."""
    options = {"confirm_publish": True}
    arguments = {"x-overflow": "reject-publish"}
    with Connection(broker.uri, transport_options=options) as connection:
        queue = private(name, Exchange(""), name, max_length=1, queue_arguments=arguments)
        with connection.Producer() as producer:
            producer.publish("first", routing_key=name, declare=[queue])
            with pytest.raises(MessageNacked):
                producer.publish("second", routing_key=name)
        assert queue(connection.default_channel).queue_declare(passive=True).message_count == 1


def test_pools(broker: Broker, name: str) -> None:
    """Producers and connections are shared by what asks for the same broker."""
    connection = Connection(broker.uri)
    queue = Queue(name, Exchange(""), name, durable=False, expires=60)
    for i in range(10):
        with pools.producers[connection].acquire(block=True, timeout=SECONDS_MAX) as producer:
            producer.publish(i, routing_key=name, declare=[queue])
    with pools.connections[connection].acquire(block=True, timeout=SECONDS_MAX) as pooled:
        assert [body for _, body in drained(pooled, [queue], 10)] == list(range(10))
    pools.reset()


class Worker(ConsumerMixin):
    """kombu's consumer loop, whose first message meets a connection that breaks."""

    def __init__(self, connection: Connection, queue: Queue) -> None:
        self.connection = connection
        self.queue = queue
        self.got: list[tuple[str, bool]] = []

    def get_consumers(self, consumer: Any, channel: Any) -> list[Any]:
        """Consume from the queue, on each connection anew."""
        return [consumer(self.queue, callbacks=[self.on_task], prefetch_count=1)]

    def on_task(self, body: str, message: Message) -> None:
        """Break the connection at the first message; end after the second."""
        self.got.append((body, message.delivery_info["redelivered"]))
        if len(self.got) == 1:
            sock = message.channel.connection.transport.sock
            sock.shutdown(socket.SHUT_RDWR)
            return
        message.ack()
        self.should_stop = len(self.got) == 3


def test_consumer_mixin_connects_again(broker: Broker, connection: Connection, name: str) -> None:
    """What was not acked on a broken connection is delivered again on the next."""
    queue = Queue(name, Exchange(""), name, durable=False, expires=60)
    with connection.Producer() as producer:
        for body in ("a", "b"):
            producer.publish(body, routing_key=name, declare=[queue])
    with Connection(broker.uri) as own:
        worker = Worker(own, queue)
        worker.run()
    assert worker.got == [("a", False), ("a", True), ("b", False)]
    assert queue(connection.default_channel).queue_declare(passive=True).message_count == 0


def test_retried_publish(broker: Broker, name: str) -> None:
    """A producer with `retry` connects again where its connection broke."""
    options = {"confirm_publish": True}
    with Connection(broker.uri, transport_options=options) as connection:
        queue = Queue(name, Exchange(""), name, durable=False, expires=60)
        with connection.Producer() as producer:
            producer.publish(1, routing_key=name, declare=[queue])
            connection.connection.transport.sock.shutdown(socket.SHUT_RDWR)
            producer.publish(2, routing_key=name, retry=True, declare=[queue])
        assert [body for _, body in drained(connection, [queue], 2)] == [1, 2]


def test_deleting_the_queue_that_one_consumes(connection: Connection, name: str) -> None:
    """The -ok comes first: the delete returns, and what reads next hears of the consumer's end."""
    channel = connection.default_channel
    queue = Queue(name, Exchange(""), name, durable=True)(channel)
    queue.declare()
    with connection.Producer() as producer:
        producer.publish(1, routing_key=name, delivery_mode=2)
    got: list[Any] = []

    def on_message(body: Any, message: Message) -> None:
        got.append((body, message))

    connection.Consumer(queue, callbacks=[on_message]).consume()
    connection.drain_events(timeout=SECONDS_MAX)
    assert [body for body, _ in got] == [1]
    assert channel.queue_delete(name) == 0
    with pytest.raises(ConsumerCancelled):
        connection.drain_events(timeout=SECONDS_MAX)
