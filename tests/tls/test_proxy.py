"""The PROXY protocol: what a header means, byte by byte, and what is no header."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator

import pytest

from leveret.limits import PROXY_HEADER_BYTES_MAX
from leveret.server.opening.proxy import SIGNATURE, BadHeader, read_header
from leveret.session.admission import Admission, Slot
from leveret.testing import Broker
from leveret.wire.frames import PROTOCOL_HEADER
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import Pki, port_of, read_all
from support.http.http_api import Api
from support.wire import raw

LINE = b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 5672\r\n"
LINE_6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 5672\r\n"


def binary(family: int, addresses: bytes, version: int = 0x21, more: bytes = b"") -> bytes:
    """Return a header of version 2."""
    rest = addresses + more
    return SIGNATURE + bytes([version, family]) + len(rest).to_bytes(2, "big") + rest


V4 = binary(
    0x11, socket.inet_aton("192.0.2.7") + socket.inet_aton("192.0.2.1") + b"\xdc\x04\x16\x28"
)
V6 = binary(
    0x21,
    socket.inet_pton(socket.AF_INET6, "2001:db8::7") * 2 + b"\xdc\x04\x16\x28",
    more=b"\x04\x00\x03abc",
)


@pytest.mark.parametrize(
    ("data", "host"),
    [
        (LINE, "192.0.2.7"),
        (LINE_6, "2001:db8::7"),
        (V4, "192.0.2.7"),
        (V6, "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n", ""),
        (b"PROXY UNKNOWN ff ee whatever\r\n", ""),
        (binary(0, b"", version=0x20), ""),
        (binary(0x11, bytes(12), version=0x20), ""),
        (binary(0, b""), ""),
    ],
)
def test_a_header_is_read_from_its_last_byte_on(data: bytes, host: str) -> None:
    for end in range(len(data)):
        assert read_header(data[:end]) is None
    for rest in (b"", b"AMQP", data):
        header = read_header(data + rest)
        assert header is not None
        assert (header.size, header.host) == (len(data), host)
        assert header.port == (56_324 if host else 0)


@pytest.mark.parametrize(
    "data",
    [
        b"AMQP\x00\x00\x09\x01",
        b"\x16\x03\x01",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 56324\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 5672 1\r\n",
        b"PROXY TCP4  192.0.2.7 192.0.2.1 56324 5672\r\n",
        b"PROXY TCP4 2001:db8::7 192.0.2.1 56324 5672\r\n",
        b"PROXY TCP6 192.0.2.7 192.0.2.1 56324 5672\r\n",
        b"PROXY TCP6 fe80::7%name fe80::1 56324 5672\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 65536 5672\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 -1 5672\r\n",
        b"PROXY TCP4 192.0.2.7\x00 192.0.2.1 1 5672\r\n",
        b"PROXY TCP4 \xff 192.0.2.1 1 5672\r\n",
        b"PROXY UDP4 192.0.2.7 192.0.2.1 1 5672\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4 " + b"x" * 100,
        binary(0x11, bytes(11)),
        binary(0x21, bytes(35)),
        binary(0x12, bytes(12)),
        binary(0x31, bytes(216)),
        binary(0x11, bytes(12), version=0x11),
        binary(0x11, bytes(12), version=0x22),
        binary(0x11, bytes(PROXY_HEADER_BYTES_MAX - 15)),
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(BadHeader):
        read_header(data)


def test_a_header_may_have_so_many_bytes() -> None:
    data = binary(0x11, bytes(PROXY_HEADER_BYTES_MAX - 16))
    header = read_header(data)
    assert header is not None
    assert header.size == PROXY_HEADER_BYTES_MAX == len(data)


@pytest.fixture(scope="module")
def broker(pki: Pki) -> Iterator[Broker]:
    """A broker behind a proxy, with TLS and without."""
    with Broker(**pki.settings, proxy_protocol=True, log_level="info") as made:
        yield made


@pytest.mark.parametrize("header", [LINE, V4])
@pytest.mark.parametrize("bytewise", [False, True])
def test_the_peer_is_the_one_in_the_header(
    broker: Broker, header: bytes, bytewise: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "leveret.broker")
    with raw.Connection("127.0.0.1", broker.port, bytewise=bytewise) as connection:
        connection.send(header + PROTOCOL_HEADER)
        connection.expect(0, "connection.start")
    assert f"'192.0.2.7:56324 -> 127.0.0.1:{broker.port}'" in caplog.text


def test_a_user_of_this_machine_does_not_come_from_another(broker: Broker) -> None:
    with raw.Connection("127.0.0.1", broker.port) as connection:
        connection.send(LINE)
        connection.start(raw.Login())
        connection.expect_connection_close(403)


def test_a_user_of_this_machine_may_come_through_a_proxy_on_it(broker: Broker) -> None:
    for header in (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 5672\r\n", binary(0, b"", version=0x20)):
        with raw.Connection("127.0.0.1", broker.port) as connection:
            connection.send(header)
            connection.handshake()


def test_tls_follows_the_header(broker: Broker, pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "leveret.broker")
    with socket.create_connection(("127.0.0.1", broker.tls_port), 60) as sock:
        sock.sendall(LINE)
        with pki.trusting().wrap_socket(sock, server_hostname="localhost") as secure:
            secure.sendall(PROTOCOL_HEADER)
            assert secure.recv(1) == b"\x01"
    assert f"'192.0.2.7:56324 -> 127.0.0.1:{broker.tls_port}'" in caplog.text


@pytest.mark.parametrize(
    "data", [PROTOCOL_HEADER, b"PROXY TCP4 x\r\n", SIGNATURE + b"\x99\x00\x00\x00"]
)
def test_without_a_header_there_is_no_connection(
    broker: Broker, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), 60) as sock:
        sock.sendall(data)
        assert read_all(sock) == b""
    assert "(proxy_protocol)" in caplog.text


def test_a_refused_peer_that_goes_on_sending_is_not_reset(broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), 60) as sock:
        sock.sendall(PROTOCOL_HEADER + bytes(8_000_000))
        assert read_all(sock) == b""


def test_a_header_without_the_setting_is_no_amqp() -> None:
    with Broker() as broker, socket.create_connection(("127.0.0.1", broker.port), 60) as sock:
        sock.sendall(LINE)
        assert read_all(sock) == PROTOCOL_HEADER


def test_a_connection_counts_by_the_address_that_its_proxy_named() -> None:
    expelled: list[str] = []
    admission = Admission(4)
    for number in range(4):
        slot = Slot("10.0.0.1", lambda number=number: expelled.append(str(number)))  # type: ignore[misc]
        admission.enter(slot)
        if number >= 1:
            admission.relocate(slot, "192.0.2.7")
    # Three of four are of the other address, which pays for its next one itself.
    admission.request("192.0.2.7")
    assert expelled == ["1"]


@pytest.fixture(scope="module")
def http_broker(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose HTTP API is behind a proxy, with TLS and without; AMQP is not."""
    folder = tmp_path_factory.mktemp("http") / "data"
    with pki.broker_process(folder, http_proxy_protocol="true") as process:
        yield process


def asked(sock: socket.socket, path: str = "/api/whoami") -> bytes:
    """Ask as the user guest; return the whole answer."""
    secret = base64.b64encode(b"guest:guest").decode()
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    sock.sendall(f"{head}Authorization: Basic {secret}\r\n\r\n".encode())
    return read_all(sock)


def test_a_client_of_http_is_the_one_that_its_proxy_names(http_broker: BrokerProcess) -> None:
    place = "127.0.0.1", port_of(http_broker, "http")
    with socket.create_connection(place, 60) as sock:
        sock.sendall(LINE)
        # The user guest comes from the machine itself only.
        assert asked(sock).startswith(b"HTTP/1.1 401 ")
    http_broker.expect_line("user 'guest' from 192.0.2.7")
    for header in (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 15672\r\n", binary(0, b"", version=0x20)):
        with socket.create_connection(place, 60) as sock:
            sock.sendall(header)
            assert asked(sock).startswith(b"HTTP/1.1 200 ")


def test_http_without_a_header_is_not_answered(http_broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", port_of(http_broker, "http")), 60) as sock:
        assert asked(sock) == b""
    http_broker.expect_line("(proxy_protocol)")


def test_https_follows_the_header(http_broker: BrokerProcess, pki: Pki) -> None:
    with socket.create_connection(("127.0.0.1", port_of(http_broker, "https")), 60) as sock:
        sock.sendall(b"PROXY TCP4 127.0.0.1 127.0.0.1 1 15671\r\n")
        with pki.trusting().wrap_socket(sock, server_hostname="localhost") as secure:
            assert asked(secure).startswith(b"HTTP/1.1 200 ")


def test_amqp_metrics_and_the_operator_need_no_header_of_http(http_broker: BrokerProcess) -> None:
    with raw.Connection("127.0.0.1", http_broker.port) as connection:
        connection.handshake()
    api = Api(http_broker.data_dir / "management.sock")
    assert api.answer("/api/whoami")[0] == 200
    api.close()
