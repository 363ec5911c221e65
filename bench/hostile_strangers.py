"""What strangers without a password try: descriptors, HTTP before login, silence, wrong logins."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import threading
import time
import zlib
from collections.abc import Callable
from typing import Final

from target import HOST, Target

from support.wire import raw
from support.wire.raw_codec import method

#: A soft limit that a shell may give, and the hard one with it.
DESCRIPTORS: Final = {"half-open": 128, "half-open-http": 128}

#: How long a pause takes, and the attack with it: who ended it earlier would leave it paused.
PAUSE_SECONDS: Final = 6.0
SECONDS: Final = {"paused": PAUSE_SECONDS + 2.0}

#: Connections that most attacks hold at once.
CONNECTIONS: Final = 1000


def attack_half_open(target: Target) -> None:
    """Half-open connections beyond the limit of descriptors, and 4 MB/s of publishing."""
    _hold(target, target.port, 160, b"")


def attack_half_open_http(target: Target) -> None:
    """The same on the port of HTTP."""
    _hold(target, target.http_port, 160, b"")


def _hold(target: Target, port: int, count: int, said: bytes) -> None:
    """Hold so many connections; one that ends is opened again.  Publish meanwhile."""
    publisher = threading.Thread(target=_publish, args=(target,), daemon=True)
    publisher.start()
    held: list[socket.socket] = []
    while not target.over:
        while len(held) < count and not target.over:
            with contextlib.suppress(OSError):
                sock = target.dial(port)
                sock.setblocking(False)
                sock.sendall(said)
                held.append(sock)
        target.nap(0.05)
        held = [sock for sock in held if _lives(sock)]
    publisher.join()


def _lives(sock: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        try:
            if sock.recv(65_536):
                return True
        except BlockingIOError:
            return True
        except OSError:
            pass
    sock.close()
    return False


def _publish(target: Target) -> None:
    """Publish 4 MB/s with confirms, as a tenant who may."""
    body = bytes(262_144)
    with contextlib.suppress(OSError, raw.Closed, AssertionError), target.log_in() as connection:
        connection.open_channel(1)
        connection.declare(1, "filled", durable=True)
        connection.call(1, "confirm.select")
        while not target.over:
            connection.send(raw.publish(1, "", "filled", body, delivery_mode=2))
            connection.next_method()
            target.nap(1 / 16)


def attack_gzip(target: Target) -> None:
    """A request whose compressed body inflates to 10 GB, again and again, without credentials."""
    squeezed = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = squeezed.compress(bytes(10_000_000))
    head = (
        f"POST /api/streams/%2F/x HTTP/1.1\r\nHost: {HOST}\r\nContent-Encoding: gzip\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n"
    ).encode()
    while not target.over:
        with contextlib.suppress(OSError), target.dial(target.http_port) as sock:
            sock.sendall(head)
            while not target.over:
                sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                piece = squeezed.compress(bytes(10_000_000)) or piece


def attack_idle_http(target: Target) -> None:
    """More idle connections than the limit on the port of HTTP."""
    _hold(target, target.http_port, 1100, b"")


def attack_dribbled_http(target: Target) -> None:
    """As many connections on the port of HTTP whose headers come a byte at a time."""
    held: list[socket.socket] = []
    head = b"GET /api/streams/%2F HTTP/1.1\r\nX-Slow: "
    while not target.over:
        with contextlib.suppress(OSError):
            while len(held) < 1100 and not target.over:
                sock = target.dial(target.http_port)
                sock.setblocking(False)
                sock.sendall(head)
                held.append(sock)
        for sock in held:
            with contextlib.suppress(OSError):
                sock.sendall(b"x")
        held = [sock for sock in held if _lives(sock)]
        target.nap(0.5)


def _wrong_logins(target: Target, source: Callable[[int], str]) -> None:
    """Log in with wrong passwords on many connections at once, for as long as it lasts."""

    def guess(number: int) -> None:
        tried = 0
        while not target.over:
            tried += 1
            with contextlib.suppress(OSError):
                sock = target.dial(source=source(number))
                with sock:
                    sock.sendall(raw.PROTOCOL_HEADER)
                    sock.sendall(_start_ok(f"cold-{number % 400}", f"{number}-{tried}"))
                    while sock.recv(65_536):
                        continue

    threads = [
        threading.Thread(target=guess, args=(number,), daemon=True) for number in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    target.nap(1e9)


def _start_ok(user: str, password: str) -> bytes:
    response = f"\0{user}\0{password}".encode()
    return method(
        0, "connection.start-ok", client_properties={}, mechanism="PLAIN", response=response,
        locale="en_US",
    )  # fmt: skip


def attack_wrong_logins(target: Target) -> None:
    """1,000 wrong logins at once from the neighbour's own address."""
    _wrong_logins(target, lambda _: HOST)


def attack_wrong_logins_elsewhere(target: Target) -> None:
    """1,000 wrong logins at once from another address."""
    _wrong_logins(target, lambda _: "127.0.0.2")


def attack_wrong_logins_everywhere(target: Target) -> None:
    """1,000 wrong logins at once from 250 other addresses."""
    _wrong_logins(target, lambda number: f"127.0.1.{1 + number % 250}")


def attack_wrong_logins_http(target: Target) -> None:
    """1,000 wrong logins at once over HTTP, from the neighbour's own address."""

    def guess(number: int) -> None:
        tried = 0
        while not target.over:
            tried += 1
            credentials = base64.b64encode(f"cold-1:{number}-{tried}".encode()).decode()
            head = f"GET /api/streams/%2F HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {credentials}"
            with contextlib.suppress(OSError):
                sock = target.dial(target.http_port)
                with sock:
                    sock.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
                    while sock.recv(65_536):
                        continue

    for number in range(CONNECTIONS):
        threading.Thread(target=guess, args=(number,), daemon=True).start()
    target.nap(1e9)


def attack_paused(target: Target) -> None:
    """The broker's process stands still for 6 s, with clients whose heartbeat is 2 s."""
    target.nap(1.0)
    os.kill(target.pid, signal.SIGSTOP)
    try:
        time.sleep(PAUSE_SECONDS)
    finally:
        os.kill(target.pid, signal.SIGCONT)
