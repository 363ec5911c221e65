"""Records of TLS without content: how many OpenSSL reads, and that their peer is dropped."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.limits import TLS_EMPTY_RECORDS_MAX, TLS_HANDSHAKE_RECORDS_MAX
from leveret.server.acceptor import Acceptor
from leveret.server.opening.certificate_name import LoginName
from leveret.server.opening.opening import Openings
from leveret.server.opening.records import TLS_PIECE_BYTES, Records
from leveret.server.opening.tls import TLS_RECORDS_PER_TURN, Tls, TlsConnection
from leveret.session.admission import Admission, Slot
from leveret.testing import Broker
from support.brokers.openssl import TlsClient
from support.brokers.secure import Pki, read_all
from support.wire import raw

#: More than anybody needs.
MANY = 2000


def record(size: int) -> bytes:
    """Return a record of so many bytes."""
    return b"\x17\x03\x03" + size.to_bytes(2, "big") + bytes(size)


SIZES = st.sampled_from([0, 1, 22, 16_406, TLS_PIECE_BYTES - 5, TLS_PIECE_BYTES]) | st.integers(
    0, 40_000
)


@given(sizes=st.lists(SIZES, max_size=40), cuts=st.lists(st.floats(0, 1), max_size=5))
def test_records_are_counted_however_they_come(sizes: list[int], cuts: list[float]) -> None:
    data = b"".join(record(size) for size in sizes)
    places = sorted(int(cut * len(data)) for cut in cuts)
    records = Records()
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        at, piece = 0, data[begin:end]
        while at < len(piece):
            before, ended = at, records.ended
            at = records.cut(piece, at)
            assert before < at <= before + TLS_PIECE_BYTES + 4
            assert records.ended - ended <= TLS_EMPTY_RECORDS_MAX + 1
        assert at == len(piece)
    assert records.ended == len(sizes)


def test_so_many_empty_records_are_taken_at_once_and_one_each_second() -> None:
    records = Records()
    assert not records.are_empty(TLS_EMPTY_RECORDS_MAX, 100.0)
    assert not records.are_empty(1, 101.0)
    assert records.are_empty(1, 101.0)
    records = Records()
    assert not any(records.are_empty(1, float(second)) for second in range(10_000))


class Upper(asyncio.Protocol):
    """What is above TLS; it notes what comes."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.grown = asyncio.Event()
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Note a part."""
        self.parts.append(data)
        self.grown.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self.lost.set()

    async def whole(self, size: int) -> bytes:
        """Return all that has come once it is so many bytes."""
        while sum(map(len, self.parts)) < size:
            self.grown.clear()
            await self.grown.wait()
        return b"".join(self.parts)


@dataclass
class Link:
    """A client of TLS and the broker's side of its connection, after the handshake."""

    client: TlsClient
    connection: TlsConnection
    upper: Upper
    said: list[str]

    def read(self, data: bytes) -> int:
        """Have the broker read, in one turn; return how many records went to OpenSSL."""
        before = self.connection.records.ended
        self.connection.data_received(data)
        return self.connection.records.ended - before


def linked(pki: Pki, scene: Callable[[Link], Coroutine[Any, Any, None]]) -> None:
    """Play a scene."""

    async def play() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki.broker.certificate, pki.broker.key)
        said: list[str] = []
        tls = Tls(
            Openings(600, lambda _, text: said.append(text)),
            lambda: context,
            LoginName("common_name"),
        )
        upper = Upper()
        made: list[TlsConnection] = []

        def opening(above: asyncio.Protocol, slot: Slot, admission: Admission) -> TlsConnection:
            made.append(tls.open(above, slot, admission))
            return made[0]

        listening = socket.create_server(("127.0.0.1", 0))
        acceptor = Acceptor(
            listening,
            Admission(1),
            lambda network: (upper, Slot(network, list)),
            lambda *_: None,
            opening=opening,
        )
        client, port = TlsClient(), listening.getsockname()[1]
        try:
            loop = asyncio.get_running_loop()
            with await loop.run_in_executor(None, client.connect, port, raw.SECONDS_MAX) as sock:
                # The broker's side is open once it has read a record behind the handshake.
                sock.sendall(client.content(b"begun"))
                await upper.whole(len(b"begun"))
                upper.parts.clear()
                await scene(Link(client, made[0], upper, said))
            await upper.lost.wait()
        finally:
            acceptor.close()
            tls.stop()
            client.close()

    asyncio.run(play())


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("content", [0, 1])
def test_openssl_reads_few_records_without_content(pki: Pki, asks: bool, content: int) -> None:
    """None beyond the first that is too many, also where each is followed by content."""

    async def scene(link: Link) -> None:
        parts = [b"x"] * content
        flood = b"".join(
            link.client.updates(1, asks) + link.client.content(*parts) for _ in range(MANY)
        )
        taken = link.read(flood)
        assert taken - sum(map(len, link.upper.parts)) == TLS_EMPTY_RECORDS_MAX + 1
        (line,) = link.said
        assert "its TLS records carry no content (more than 16 at once" in line
        await link.upper.lost.wait()

    linked(pki, scene)


def test_a_key_update_now_and_then_is_none_of_these(pki: Pki) -> None:
    """As many as are taken at once, among content in small records and in large ones."""

    async def scene(link: Link) -> None:
        sizes = [1, 16_384, 3, 16_384, 16_384, 100] * TLS_EMPTY_RECORDS_MAX
        parts = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
        for number, part in enumerate(parts):
            sent = link.client.content(part)
            if number % 6 == 0:
                sent += link.client.updates(1)
            link.read(sent)
        assert await link.upper.whole(sum(sizes)) == b"".join(parts)
        assert not link.said

    linked(pki, scene)


def test_one_turn_takes_so_many_records_with_content(pki: Pki) -> None:
    async def scene(link: Link) -> None:
        content = [bytes([number % 256]) for number in range(MANY)]
        taken = link.read(link.client.content(*content))
        assert TLS_RECORDS_PER_TURN <= taken <= TLS_RECORDS_PER_TURN + TLS_EMPTY_RECORDS_MAX
        assert sum(map(len, link.upper.parts)) == taken
        assert await link.upper.whole(MANY) == b"".join(content)
        assert not link.said

    linked(pki, scene)


@pytest.fixture(scope="module")
def broker(pki: Pki) -> Iterator[Broker]:
    """A broker with TLS."""
    with Broker(**pki.settings) as made:
        yield made


LOGIN = raw.blind_login("guest")


@pytest.mark.parametrize("login", [(), LOGIN], ids=["before", "after"])
def test_a_flood_of_key_updates_ends_its_connection(
    broker: Broker, login: tuple[bytes, ...], caplog: pytest.LogCaptureFixture
) -> None:
    client = TlsClient()
    with contextlib.closing(client), client.connect(broker.tls_port, raw.SECONDS_MAX) as sock:
        sock.sendall(client.content(*login) if login else b"")
        with contextlib.suppress(ConnectionError):
            sock.sendall(client.updates(MANY))
            read_all(sock)
    assert "its TLS records carry no content" in caplog.text


def test_a_handshake_may_have_so_many_records(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """A record of the least size each, of a ClientHello that is never whole."""
    hello = b"\x01\x00\xff\xff" + bytes(TLS_HANDSHAKE_RECORDS_MAX)
    records = [b"\x16\x03\x01\x00\x01" + bytes([byte]) for byte in hello]
    with socket.create_connection(("127.0.0.1", broker.tls_port), raw.SECONDS_MAX) as sock:
        sock.sendall(b"".join(records[:TLS_HANDSHAKE_RECORDS_MAX]))
        assert not caplog.text
        sock.sendall(records[TLS_HANDSHAKE_RECORDS_MAX])
        assert read_all(sock) == b""
    assert "its TLS handshake has more than 512 records" in caplog.text
