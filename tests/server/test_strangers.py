"""Peers that speak something else than AMQP 0-9-1, or AMQP where HTTP is spoken."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.client.blocking import connect
from leveret.wire.frames import PROTOCOL_HEADER
from support.brokers.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker."""
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


def http_port(broker: BrokerProcess) -> int:
    """Return where the broker listens for HTTP."""
    return int(broker.expect_line("listening on http://").split(":")[-1])


def exchange(port: int, data: bytes) -> bytes:
    """Send bytes and return all that comes until the end."""
    with socket.create_connection(("127.0.0.1", port), 60) as peer:
        peer.sendall(data)
        found = b""
        while piece := peer.recv(4096):
            found += piece
        return found


@pytest.mark.parametrize(
    ("sent", "protocol", "answer"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS", b"\x15\x03\x01\x00\x02\x02\x28"),
        (b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04name", "MQTT", b"\x20\x02\x00\x01"),
        (b"\x10\x11\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x04name", "MQTT", b"\x20\x03\x00\x84\x00"),
        (b"AMQP\x00\x01\x00\x00", "AMQP 1.0", PROTOCOL_HEADER),
        (b"AMQP\x03\x01\x00\x00", "AMQP 1.0", PROTOCOL_HEADER),
        (b"AMQP\x01\x01\x00\x0a", "another version of AMQP", PROTOCOL_HEADER),
    ],
)
def test_a_peer_of_another_protocol_is_named_and_answered(
    broker: BrokerProcess, sent: bytes, protocol: str, answer: bytes
) -> None:
    assert exchange(broker.port, sent) == answer
    broker.expect_line(f"the peer speaks {protocol}, but this port speaks AMQP 0-9-1")


def test_what_is_no_known_protocol_is_shown_and_gets_the_header(broker: BrokerProcess) -> None:
    assert exchange(broker.port, b"\x1b[2Jhello") == PROTOCOL_HEADER
    line = broker.expect_line("does not speak AMQP 0-9-1")
    assert "hell" in line
    assert "\x1b" not in line


def test_a_browser_is_told_the_right_port(broker: BrokerProcess) -> None:
    for method in ("GET", "POST", "DELETE"):
        asking = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=60)
        asking.request(method, "/")
        answer = asking.getresponse()
        assert answer.status == 400
        text = f"This port speaks AMQP 0-9-1; HTTP is on port {http_port(broker)}.\n"
        assert answer.read().decode() == text
        asking.close()
    broker.expect_line("the peer speaks HTTP, but this port speaks AMQP 0-9-1; HTTP is on port")


def test_a_client_of_amqp_on_the_port_of_http_is_told(broker: BrokerProcess) -> None:
    with pytest.raises(Exception, match="this port speaks HTTP; AMQP is on another"):
        connect(f"amqp://127.0.0.1:{http_port(broker)}")
    broker.expect_line("speaks AMQP, but this port speaks HTTP")


@pytest.mark.parametrize("compatibility", ["leveret", "rabbitmq"])
def test_a_term_is_followed_by_plain_words_unless_it_is_rabbitmqs(
    tmp_path: Path, compatibility: str
) -> None:
    term = "{value_negative,-1}"
    with (
        BrokerProcess(tmp_path, settings={"compatibility": compatibility}) as broker,
        connect(broker.uri) as connection,
    ):
        with pytest.raises(Exception, match="406") as refused:
            connection.channel().queue_declare("q", arguments={"x-max-length": -1})
        words = " (-1 is less than 0)" if compatibility == "leveret" else ""
        assert str(refused.value).endswith(f": {term}{words}")
