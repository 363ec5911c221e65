"""AMQP over TLS: bytes to and fro, what is refused, and what a peer that does not read costs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import leveret.client
from leveret.client import blocking
from leveret.limits import TLS_HANDSHAKE_BYTES_MAX
from leveret.testing import Broker
from leveret.wire.frames import PROTOCOL_HEADER
from support.brokers.secure import Pki, handshake, read_all, uri_of
from support.wire import raw


@pytest.fixture(scope="module")
def broker(pki: Pki) -> Iterator[Broker]:
    """A broker with TLS."""
    with Broker(**pki.settings) as made:
        yield made


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 5_000_000])
def test_a_message_goes_both_ways(broker: Broker, pki: Pki, size: int) -> None:
    with blocking.connect(uri_of(broker.tls_port), ssl=pki.trusting()) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.confirm_select()
        body = bytes(range(256)) * (size // 256) + bytes(size % 256)
        channel.publish(body, routing_key=queue)
        message = channel.get(queue, no_ack=True)
        assert message is not None
        assert message.body == body


def test_many_messages_go_both_ways_at_once(broker: Broker, pki: Pki) -> None:
    async def run() -> list[bytes]:
        uri = uri_of(broker.tls_port)
        async with leveret.client.connect(uri, ssl=pki.trusting()) as connection:
            channel = await connection.channel()
            queue = (await channel.queue_declare(exclusive=True)).queue
            consumer = await channel.consume(queue, no_ack=True)
            for number in range(5000):
                channel.publish_nowait(number.to_bytes(4) * 300, routing_key=queue)
            found: list[bytes] = []
            async for message in consumer:
                found.append(message.body)
                if len(found) == 5000:
                    break
            return found

    bodies = asyncio.run(run())
    assert bodies == [number.to_bytes(4) * 300 for number in range(5000)]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken(broker: Broker, pki: Pki, version: ssl.TLSVersion) -> None:
    context = pki.trusting()
    context.minimum_version = context.maximum_version = version
    with blocking.connect(uri_of(broker.tls_port), ssl=context) as connection:
        connection.channel()


def test_an_older_version_is_refused(broker: Broker, pki: Pki) -> None:
    context = pki.trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION|protocol version"):
        handshake(broker, context)


def test_the_lowest_version_can_be_set(pki: Pki) -> None:
    context = pki.trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        Broker(**pki.settings, tls_version_min="1.3") as broker,
        pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION|protocol version"),
    ):
        handshake(broker, context)


def test_bytes_one_by_one_are_understood(broker: Broker, pki: Pki) -> None:
    with handshake(broker, pki.trusting()) as sock:
        for place in range(len(PROTOCOL_HEADER)):
            sock.sendall(PROTOCOL_HEADER[place : place + 1])
        assert sock.recv(7)[:1] == b"\x01"


def test_very_many_small_records_lose_nothing(broker: Broker, pki: Pki) -> None:
    made = raw.Connection("localhost", broker.tls_port, context=pki.trusting())
    with made.handshake() as connection:
        connection.open_channel(1)
        connection.declare(1, "small", exclusive=True)
        publishes = b"".join(raw.publish(1, "", "small", b"x") for _ in range(300))
        for place in range(0, len(publishes), 3):
            connection.socket.sendall(publishes[place : place + 3])
        assert connection.declare(1, "small", passive=True).message_count == 300


def test_amqp_without_tls_is_told_what_is_spoken(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", broker.tls_port), 60) as sock:
        sock.sendall(PROTOCOL_HEADER)
        answer = read_all(sock)
    assert b"this port speaks TLS; use amqps://" in answer
    assert "it speaks AMQP without TLS" in caplog.text


def test_http_without_tls_is_told_what_is_spoken(broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", broker.tls_port), 60) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(sock).startswith(b"HTTP/1.1 400 ")


def test_noise_is_closed_and_logged(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", broker.tls_port), 60) as sock:
        sock.sendall(b"\x00\x1b[31mnoise")
        assert read_all(sock) == b""
    assert "it does not speak TLS; it began with b'\\x00\\x1b[31mno'" in caplog.text


def test_tls_without_tls_is_logged_with_its_remedy(
    broker: Broker, pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        socket.create_connection(("127.0.0.1", broker.port), 60) as sock,
        pytest.raises(ssl.SSLError),
    ):
        pki.trusting().wrap_socket(sock, server_hostname="localhost")
    assert f"TLS is on port {broker.tls_port}" in caplog.text


def test_a_handshake_that_is_too_long_is_cut(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    # Records of a ClientHello that is as long as OpenSSL takes it.
    hello = b"\x01" + (131_396).to_bytes(3, "big") + bytes(TLS_HANDSHAKE_BYTES_MAX)
    made = socket.create_connection(("127.0.0.1", broker.tls_port), 60)
    with made as sock:
        for place in range(0, TLS_HANDSHAKE_BYTES_MAX, 512):
            sock.sendall(b"\x16\x03\x01\x02\x00" + hello[place : place + 512])
        assert read_all(sock) == b""
    assert f"its TLS handshake has more than {TLS_HANDSHAKE_BYTES_MAX} bytes" in caplog.text


def test_a_damaged_record_ends_its_connection_alone(broker: Broker, pki: Pki) -> None:
    with blocking.connect(uri_of(broker.tls_port), ssl=pki.trusting()) as connection:
        with handshake(broker, pki.trusting()) as sock, socket.socket(fileno=sock.detach()) as bare:
            bare.settimeout(60)
            bare.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            # What the broker had said before may come first.
            with contextlib.suppress(ConnectionResetError):
                read_all(bare)
        connection.channel()


def test_a_broker_can_listen_with_tls_alone(pki: Pki, tmp_path: Path) -> None:
    given = {"amqp": "false", "tls_port": "0", "http": "false", "data_dir": str(tmp_path)}
    given |= {name: str(path) for name, path in pki.settings.items()}
    environment = os.environ | {f"LEVERET_{name.upper()}": text for name, text in given.items()}
    command = [sys.executable, "-m", "leveret", "serve"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert "Server startup complete\n" in broker.stdout
        broker.terminate()
    assert broker.returncode == 0
