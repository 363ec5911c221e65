"""Peers that stall, flood or do not read over TLS: what they cost, and that others do not wait."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from pathlib import Path

import pytest

from leveret.client import blocking
from leveret.limits import OUTPUT_BYTES_HIGH, OUTPUT_BYTES_MAX
from leveret.server.amqp import ClientProtocol
from leveret.server.opening.handshakes import Handshakes, OpeningHandshake
from leveret.server.opening.records import TLS_PIECE_BYTES
from leveret.testing import Broker
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import Pki, client_hello, handshake, port_of, read_all, stalled, uri_of
from support.wire import raw

#: What stalled peers send: nothing, the head of a record, and a whole ClientHello.
STALLED = 300


def test_a_good_client_connects_behind_stalled_ones(pki: Pki, tmp_path: Path) -> None:
    process = pki.broker_process(tmp_path / "data", handshake_seconds="300")
    with process:
        port = port_of(process)
        with (
            stalled(port, STALLED, client_hello(pki.trusting())),
            blocking.connect(uri_of(port), ssl=pki.trusting()) as connection,
        ):
            connection.channel()
        # The peers that go away are no faults of the broker.
        with blocking.connect(uri_of(port), ssl=pki.trusting()) as connection:
            connection.channel()
        assert process.terminate() == 0
        assert "internal error" not in process.output


def test_a_handshake_that_stalls_is_cut_in_time(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(**pki.settings, handshake_seconds=1) as broker:
        hello = client_hello(pki.trusting())
        with stalled(broker.tls_port, 4, hello) as peers:
            for peer in peers:
                with contextlib.suppress(ConnectionResetError):
                    read_all(peer)
    assert "it did not finish its TLS handshake in 1 s" in caplog.text


def test_stalled_handshakes_leave_their_places_to_others(pki: Pki, tmp_path: Path) -> None:
    # A limit of descriptors leaves a few dozen places.
    limit = ["prlimit", "--nofile=140:140"]
    settings = {n: str(v) for n, v in pki.settings.items()}
    ports = {"tls_port": "0", "https": "false", "http": "false", "handshake_seconds": "300"}
    with BrokerProcess(tmp_path / "data", settings=settings | ports, wrapper=limit) as process:
        port = port_of(process)
        with (
            stalled(port, 100, client_hello(pki.trusting())),
            blocking.connect(uri_of(port), ssl=pki.trusting()) as connection,
        ):
            connection.channel()
        process.expect_line("too many connections: closing one that did not finish its TLS")


def test_a_peer_that_does_not_read_is_not_fed(pki: Pki) -> None:
    with (
        Broker(**pki.settings) as broker,
        blocking.connect(uri_of(broker.tls_port), ssl=pki.trusting()) as feeding,
        raw.Connection("localhost", broker.tls_port, context=pki.trusting()) as slow,
    ):
        slow.handshake()
        slow.open_channel(1)
        slow.declare(1, "slow", exclusive=False, auto_delete=True)
        slow.call(1, "basic.consume", queue="slow", no_ack=True)
        channel = feeding.channel()
        channel.confirm_select()
        for _ in range(60):
            channel.publish(bytes(1_000_000), routing_key="slow")
        held = broker._call(_output_of_all)  # noqa: SLF001 (there is no other way to look)
        # Above the marks there is no more than what was written at once.
        assert held < OUTPUT_BYTES_HIGH + OUTPUT_BYTES_MAX + 1_100_000
        assert channel.queue_declare("slow", passive=True).message_count > 20


async def _output_of_all(handles: object) -> int:
    """Return what the transports of all connections hold."""
    from leveret.app.embedded import Handles

    assert isinstance(handles, Handles)
    total = 0
    for shell in handles._engine.runner.shells:  # noqa: SLF001 (as above)
        assert isinstance(shell, ClientProtocol)
        total += shell._transport.get_write_buffer_size()  # noqa: SLF001
    return total


class Counted(OpeningHandshake):
    """A handshake that notes when it is calculated."""

    def __init__(self, name: str, order: list[str], ended: asyncio.Event) -> None:
        self.name = name
        self.order = order
        self.ended = ended

    def calculate(self) -> None:
        """Note it."""
        self.order.append(self.name)

    def calculated(self) -> None:
        """Say when it is the last one."""
        if len(self.order) == 7:
            self.ended.set()


def test_addresses_take_turns_and_the_newest_and_the_oldest_do() -> None:
    order: list[str] = []

    async def run() -> None:
        handshakes = Handshakes()
        ended = asyncio.Event()
        for number in range(6):
            handshakes.request("a", Counted(f"a{number}", order, ended))
        gone = Counted("gone", order, ended)
        handshakes.request("a", gone)
        handshakes.forget("a", gone)
        handshakes.request("b", Counted("b0", order, ended))
        await ended.wait()
        handshakes.stop()

    asyncio.run(run())
    # The first is begun as it comes; behind it the other address has its turn at once.
    assert order[0] == "a0"
    assert "b0" in order[1:3]
    assert sorted(order) == ["a0", "a1", "a2", "a3", "a4", "a5", "b0"]


def test_a_client_cannot_renegotiate(pki: Pki) -> None:
    with Broker(**pki.settings) as broker:
        command = ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{broker.tls_port}"]
        ended = subprocess.run(command, input=b"R\n", capture_output=True, timeout=60, check=False)
        assert b"no renegotiation" in ended.stderr.lower()


def test_output_is_encrypted_in_pieces(pki: Pki) -> None:
    body = bytes(range(256)) * (3 * TLS_PIECE_BYTES // 256)
    with (
        Broker(**pki.settings) as broker,
        blocking.connect(uri_of(broker.tls_port), ssl=pki.trusting()) as connection,
    ):
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.confirm_select()
        channel.publish(body, routing_key=queue)
        message = channel.get(queue, no_ack=True)
        assert message is not None
        assert message.body == body


def test_a_stop_ends_handshakes(pki: Pki) -> None:
    with Broker(**pki.settings) as broker:
        hello = client_hello(pki.trusting())
        with stalled(broker.tls_port, 8, hello) as peers:
            with handshake(broker, pki.trusting()):
                broker.stop()
            for peer in peers:
                with contextlib.suppress(ConnectionResetError):
                    read_all(peer)
