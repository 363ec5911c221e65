"""Clients of HareMQ's protocol and pika on one broker: each gets what the other published.

HareMQ's C++ client is not at hand.  Its frames are those of `tests/haremq/frames.json`, which its
own programs wrote, and the recorded session of its interactive client is played to the broker.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker, unique
from support.http.http_api import Api
from support.wire.hare import HareClient, frame, frame_of, hare_port

FRAMES = Path(__file__).parents[1] / "haremq" / "frames.json"
LONG_ID = ("0123-" * 31)[:155]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that listens for both."""
    need_own_broker()
    data_dir = tmp_path_factory.mktemp("haremq")
    with BrokerProcess(data_dir, flags=["--haremq-port", "0"]) as broker:
        yield broker


@pytest.fixture
def hare(process: BrokerProcess) -> Iterator[HareClient]:
    """A client of HareMQ's protocol with a channel open."""
    with HareClient(hare_port(process)) as client:
        assert client.open(unique("cid"))
        yield client


@pytest.fixture
def amqp(process: BrokerProcess) -> Iterator[Any]:
    """A channel of pika with confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(process.uri))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


@pytest.mark.parametrize(
    ("kind", "binding", "key"),
    [(1, "red", "red"), (2, "", "any"), (3, "news.*.#", "news.music.pop")],
    ids=["direct", "fanout", "topic"],
)
def test_a_session_crossed_with_pika(
    hare: HareClient, amqp: Any, kind: int, binding: str, key: str
) -> None:
    exchange, for_hare, for_amqp = unique("x"), unique("q"), unique("q")
    assert hare.exchange(exchange, kind, durable=True)
    for queue in (for_hare, for_amqp):
        assert hare.queue(queue, durable=True)
        assert hare.bind(exchange, queue, binding)
    assert hare.publish(exchange, "from hare", key, id=LONG_ID, mode=2)
    properties = pika.BasicProperties(delivery_mode=2, message_id="pika's own", headers={"a": 1})
    amqp.basic_publish(exchange, key, "von pika: ü".encode(), properties)
    assert hare.consume(for_hare, tag="tag")
    first, second = hare.pushes(2)
    assert (first.body, first.properties.id) == ("from hare", LONG_ID)
    assert (first.consumer_tag, first.cid) == ("tag", hare.cid)
    assert (second.body, second.properties.id) == ("von pika: ü", "pika's own")
    assert (second.properties.routing_key, second.properties.delivery_mode) == (key, 2)
    for push in (first, second):
        assert hare.ack(for_hare, push.properties.id)
    assert hare.cancel(for_hare, "tag")
    assert amqp.queue_declare(for_hare, passive=True).method.message_count == 0
    got = [amqp.basic_get(for_amqp, auto_ack=True) for _ in range(2)]
    assert [body for _, _, body in got] == [b"from hare", "von pika: ü".encode()]
    assert got[0][1].message_id == LONG_ID
    assert got[0][1].delivery_mode == 2
    assert got[0][0].routing_key == key


def test_what_a_client_did_not_ack_goes_to_the_other_protocol(hare: HareClient, amqp: Any) -> None:
    queue = unique("q")
    amqp.queue_declare(queue, durable=True)
    amqp.basic_publish("", queue, b"one")
    assert hare.consume(queue)
    hare.pushes(1)
    hare.socket.close()
    frame_, _, body = next(amqp.consume(queue))
    assert (body, frame_.redelivered) == (b"one", True)
    amqp.basic_ack(frame_.delivery_tag)


def test_the_recorded_session_of_the_interactive_client(process: BrokerProcess) -> None:
    """Its bytes as they were; every answer but one is the recorded one, byte for byte.

    HareMQ answered its cancel `ok=false` though it was done; here the answer is true.
    """
    events = json.loads(FRAMES.read_text())["session"]["events"]
    clients: dict[int, HareClient] = {}
    ids = {"answers": 0, "better": 0}
    for event in events:
        number = event["conn"]
        if event["dir"] == "open":
            clients[number] = HareClient(hare_port(process))
        elif event["dir"] == "c2s":
            clients[number].socket.sendall(bytes.fromhex(event["segment_hex"]))
        elif event["dir"] == "s2c":
            inbox = clients[number].inbox
            before = len(inbox.got)
            while len(inbox.got) < before + len(event["frames"]):
                clients[number].receive()
            for got, recorded in zip(inbox.got[before:], event["frames"], strict=True):
                data = frame_of(got.name, got.message.SerializeToString())
                expected = frame(recorded["type"].removeprefix("hare_mq."), **recorded["fields"])
                ids["answers"] += 1
                if data != expected:
                    assert got.ok
                    assert not recorded["fields"].get("ok", False)
                    ids["better"] += 1
    for client in clients.values():
        client.socket.close()
    assert ids == {"answers": 11, "better": 1}


def test_hostile_bytes_end_their_connection_alone(process: BrokerProcess, hare: HareClient) -> None:
    good = frame("openChannelRequest", rid="r", cid="c")
    for bad in (
        (2**31 - 1).to_bytes(4, "big"),
        good[:-1] + bytes((good[-1] ^ 1,)),
        frame_of("unknownRequest", b"\xff"),
        frame_of("openChannelRequest", b"\xff"),
    ):
        with HareClient(hare_port(process)) as hostile:
            hostile.socket.sendall(bad)
            assert hostile.is_closed()
    with HareClient(hare_port(process)) as cut:
        cut.socket.sendall(good[:-1])
    assert hare.call("basicQueryRequest").name == "basicQueryResponse"
    assert process.is_running()


def test_operators_see_its_connections(process: BrokerProcess, hare: HareClient) -> None:
    with contextlib.closing(Api(process.data_dir / "management.sock")) as api:
        status, rows, _ = api.answer("/api/connections")
    assert status == 200
    assert isinstance(rows, list)
    ports = {row["peer_port"]: row for row in rows if row["protocol"] == "HareMQ"}
    row = ports[hare.socket.getsockname()[1]]
    assert (row["user"], row["vhost"], row["channels"]) == ("guest", "/", 1)
    assert row["state"] == "running"
