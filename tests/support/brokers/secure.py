"""Brokers with TLS for tests, their certificates, and their clients."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leveret.testing import Broker
from support.brokers.broker_process import BrokerProcess
from support.brokers.certificates import Authority, Certificate


class Pki:
    """An authority, the certificate of a broker on this machine, and client contexts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.broker = self.authority.sign("broker", "DNS:localhost,IP:127.0.0.1")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of an embedded broker with TLS."""
        return {"tls_certificate": self.broker.certificate, "tls_key": self.broker.key}

    @property
    def asking(self) -> dict[str, Any]:
        """The settings of one that requests client certificates; their CN is the user."""
        return self.settings | {
            "tls_ca": self.authority.certificate,
            "tls_verify": "optional",
            "tls_login_from": "common_name",
        }

    def broker_process(self, data_dir: Path, **settings: str) -> BrokerProcess:
        """Return a broker process with TLS, not yet started."""
        ours = {name: str(value) for name, value in self.settings.items()}
        ports = {"tls_port": "0", "https_port": "0"}
        return BrokerProcess(data_dir, settings=ours | ports | settings)

    def trusting(self, shown: Certificate | None = None) -> ssl.SSLContext:
        """Return a client context that trusts the authority, with certificate `shown` if given."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        return context


def port_of(process: BrokerProcess, scheme: str = "amqps") -> int:
    """Return the port of a process for AMQP over TLS, or for another scheme."""
    found = re.search(rf"listening on {scheme}://[^ ]*:(\d+)", process.expect_line(f"{scheme}://"))
    assert found is not None
    return int(found[1])


def uri_of(port: int, user: str = "guest") -> str:
    """Return the URI of a broker with TLS on this machine; every user has guest's password."""
    return f"amqps://{user}:guest@localhost:{port}"


def handshake(broker: Broker, context: ssl.SSLContext, name: str = "localhost") -> ssl.SSLSocket:
    """Return a connection to an embedded broker after the TLS handshake."""
    sock = socket.create_connection(("127.0.0.1", broker.tls_port), 60)
    return context.wrap_socket(sock, server_hostname=name)


def client_hello(context: ssl.SSLContext) -> bytes:
    """Return a ClientHello."""
    outgoing = ssl.MemoryBIO()
    made = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        made.do_handshake()
    return outgoing.read()


@contextlib.contextmanager
def stalled(port: int, count: int, hello: bytes) -> Iterator[list[socket.socket]]:
    """Yield `count` connections with stalled handshakes."""
    with contextlib.ExitStack() as stack:
        found = []
        for number in range(count):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            sock.sendall((b"", hello[:5], hello[:40], hello)[number % 4])
            found.append(sock)
        yield found


def read_all(sock: socket.socket) -> bytes:
    """Read until the end of the stream."""
    found = b""
    while piece := sock.recv(65_536):
        found += piece
    return found
