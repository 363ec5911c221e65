"""kombu against a running broker: what Celery does through it."""
# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from amqp.exceptions import AccessRefused, NotFound
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.message import Message
from kombu.pidbox import Mailbox

from brokers import Broker


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
            connection.drain_events(timeout=10)
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
    message = queue.get(timeout=10)
    assert message.payload == {"a": 1}
    message.requeue()
    again = queue.get(timeout=10)
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
    """Transient, shared, auto-delete, with expires and TTL: RabbitMQ 4.3 refuses these, 3.x not."""
    exchange = Exchange(name, "fanout", auto_delete=True, durable=False)
    queue = Queue(
        name, exchange, durable=False, auto_delete=True, expires=60, message_ttl=10, max_priority=5
    )
    got: list[Any] = []
    with connection.Consumer(queue, callbacks=[lambda body, _: got.append(body)], no_ack=True):
        with connection.Producer() as producer:
            producer.publish({"hello": 1}, exchange=exchange)
        while not got:
            connection.drain_events(timeout=10)
    assert got == [{"hello": 1}]


def test_pidbox(connection: Connection, name: str) -> None:
    """Celery's remote control: broadcast to a fanout, the answer to a reply queue of one's own."""
    mailbox = Mailbox(name, type="fanout", accept=["json"])(connection)
    node = mailbox.Node("worker", state=None)

    @node.handler  # type: ignore[untyped-decorator]
    def ping(_: object) -> dict[str, str]:
        return {"ok": "pong"}

    consumer = node.listen(channel=connection.default_channel)
    replies = mailbox.call(["worker"], "ping", timeout=10)
    consumer.cancel()
    assert replies == [{"worker": {"ok": "pong"}}]
