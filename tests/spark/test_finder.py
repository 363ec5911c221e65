"""Which streams there are: partitions are asked for, patterns need the broker's HTTP listener."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from leveret.errors import NotFound
from leveret.spark.options.read import OptionError, parse_options
from leveret.spark.stream.finder import find_streams
from leveret.spark.transport import Interrupted
from support.brokers.brokers import Broker
from support.spark.live_stream import LiveStream

TOKEN = "Basic " + base64.b64encode(b"someone:s3cret").decode()


class Listener(ThreadingHTTPServer):
    """A broker's HTTP listener: answers by path, for one user."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        #: What everything is answered with instead, if that is not 0.
        self.fault = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = self.server.answers.get(self.path)
        if self.server.fault:
            self.send_error(self.server.fault)
        elif self.headers["Authorization"] != TOKEN:
            self.send_error(401)
        elif body is None:
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Be quiet."""


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def find(listener: Listener, pattern: str, user: str = "someone:s3cret") -> tuple[str, ...]:
    options = {
        "uri": f"amqp://{user}@127.0.0.1:1/my%2Fhost",
        "streamPattern": pattern,
        "httpUri": listener.uri,
    }
    return find_streams(parse_options(options))


def test_leveret_lists_its_streams(listener: Listener) -> None:
    names = ["orders-b", "orders-a", "other", "orders-a2"]
    listener.answers["/api/streams/my%2Fhost"] = json.dumps([{"name": n} for n in names]).encode()
    assert find(listener, "orders-.") == ("orders-a", "orders-b")
    assert find(listener, ".*") == tuple(sorted(names))
    assert find(listener, "none") == ()


def test_rabbitmq_lists_its_queues(listener: Listener) -> None:
    queues = [{"name": "s", "type": "stream"}, {"name": "q", "type": "classic"}]
    listener.answers["/api/queues/my%2Fhost?columns=name,type"] = json.dumps(queues).encode()
    assert find(listener, ".*") == ("s",)


@pytest.mark.parametrize("body", [b"{}", b"[1]", b"no JSON", b'[{"type": "stream"}]'])
def test_an_answer_that_is_no_list_is_an_error(listener: Listener, body: bytes) -> None:
    listener.answers["/api/streams/my%2Fhost"] = body
    with pytest.raises(OptionError, match="does not list"):
        find(listener, ".*")


def test_a_refusal_is_an_error_without_the_password(listener: Listener) -> None:
    with pytest.raises(OptionError, match="401") as caught:
        find(listener, ".*", user="someone:wr0ng")
    assert "wr0ng" not in str(caught.value)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_fault_of_the_listener_is_an_interruption(listener: Listener, status: int) -> None:
    """As of a broker that starts behind a proxy: it is asked again."""
    listener.fault = status
    with pytest.raises(Interrupted, match=f"{listener.uri} answered {status}"):
        find(listener, ".*")


def test_too_many_streams_are_an_error(listener: Listener) -> None:
    many = [{"name": str(number)} for number in range(1001)]
    listener.answers["/api/streams/my%2Fhost"] = json.dumps(many).encode()
    with pytest.raises(OptionError, match="1001 streams exceed the limit"):
        find(listener, ".*")


def test_nobody_who_answers_is_an_interruption_that_says_what_to_do() -> None:
    options = {
        "uri": "amqp://127.0.0.1:1",
        "streamPattern": ".*",
        "httpUri": "http://127.0.0.1:1",
    }
    with pytest.raises(Interrupted, match="management plugin, and set the option httpUri"):
        find_streams(parse_options(options))


def test_a_leveret_tells_where_it_lists_its_streams(broker: Broker, stream: LiveStream) -> None:
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ does not tell the port of its management plugin")
    options = {"uri": broker.uri, "streamPattern": f"{stream.name[:-1]}."}
    assert find_streams(parse_options(options)) == (stream.name,)


def test_partitions_are_counted(broker: Broker, name: str) -> None:
    options = parse_options({"uri": broker.uri, "superStream": name})
    with pytest.raises(NotFound, match=f"there is no stream '{name}-0'"):
        find_streams(options)
    partitions = [LiveStream(broker.uri, f"{name}-{n}", f"{name}-x{n}") for n in (0, 1, 3)]
    for partition in partitions:
        partition.declare()
    try:
        assert find_streams(options) == (f"{name}-0", f"{name}-1")
    finally:
        for partition in partitions:
            partition.delete()


def test_a_topic_is_a_super_stream_or_a_stream(broker: Broker, name: str) -> None:
    def found(**options: str) -> tuple[str, ...]:
        return find_streams(parse_options({"uri": broker.uri, **options}))

    plain = LiveStream(broker.uri, f"{name}-plain", f"{name}-plain")
    # No exchange has the name of the first, so this is no partition.
    lookalike = LiveStream(broker.uri, f"{name}-plain-0", f"{name}-other")
    plain.declare()
    with plain.channel() as channel:
        parts = {"x-queue-type": "stream", "x-super-stream-partitions": 3}
        channel.queue_declare(name, durable=True, arguments=parts)
    partitions = tuple(f"{name}-{number}" for number in range(3))
    try:
        assert found(subscribe=f"{name}, {plain.name}") == (*partitions, plain.name)
        assert found(assign=f'{{"{name}": [2, 0], "{plain.name}": [0]}}') == (
            *(partitions[2], partitions[0]),
            plain.name,
        )
        # A topic that does not exist is found out by the read.
        assert found(subscribe=f"{name}.none") == (f"{name}.none",)
        for topic, number, count in ((name, 3, 3), (plain.name, 1, 1)):
            with pytest.raises(
                NotFound, match=f"no partition {number} of '{topic}': it has {count}"
            ):
                found(assign=f'{{"{topic}": [{number}]}}')
        with pytest.raises(OptionError, match=f"'{name}-1' is a topic of its own and a partition"):
            found(subscribe=f"{name},{name}-1")
        lookalike.declare()
        with plain.channel() as channel:
            channel.queue_unbind(plain.name, plain.exchange, "#")
            channel.exchange_delete(plain.exchange)
        assert found(subscribe=plain.name) == (plain.name,)
        lookalike.delete()
    finally:
        with plain.channel() as channel:
            channel.queue_delete(name)
        plain.delete()


def test_nobody_at_the_broker_is_an_interruption() -> None:
    with pytest.raises(Interrupted):
        find_streams(parse_options({"uri": "amqp://127.0.0.1:1", "superStream": "s"}))
