"""Peers that send a byte each second: how long they keep their connections, and what others wait.

    .venv/bin/python bench/slow.py [--peers 2000] [--json]

A third of them dribbles the protocol header of AMQP, a third a ClientHello of TLS, a third a
request of HTTP.  Meanwhile clients connect by AMQP, log in and open a channel, one after the other.
Every peer is to be cut off within ten seconds, and the clients' 99th percentile to be below 200 ms.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import sides  # noqa: F401  (it finds the helpers that the tests share)

from leveret.client import blocking
from support.brokers.secure import Pki, client_hello, port_of

CUT_SECONDS_TARGET: Final = 10.0
CONNECT_MS_TARGET: Final = 200.0

#: How long the peers go on if nobody cuts them off.
SECONDS_MAX: Final = 45.0


class Peers:
    """Connections of one kind, each of which sends a byte of `said` each second."""

    def __init__(self, port: int, said: bytes, count: int) -> None:
        self.said = said
        #: What is open, with the moment when its connect began.
        self.open: dict[socket.socket, float] = {}
        for _ in range(count):
            began = time.monotonic()
            self.open[socket.create_connection(("127.0.0.1", port))] = began
        self.sent = 0
        #: After how many seconds each of the others was cut off.
        self.cut: list[float] = []

    def send(self) -> None:
        """Send the next byte on what is open; note what is not any more."""
        byte = self.said[self.sent % len(self.said) :][:1]
        self.sent += 1
        for sock in list(self.open):
            try:
                sock.sendall(byte)
            except OSError:
                self.end(sock)

    def end(self, sock: socket.socket) -> None:
        """Note that a connection was cut off, now."""
        self.cut.append(time.monotonic() - self.open.pop(sock))
        sock.close()

    def look(self, sock: socket.socket) -> None:
        """Read what came on a connection; note whether it was cut off."""
        try:
            if sock.recv(4096):
                return
        except OSError:
            pass
        self.end(sock)


def connects(port: int, stop: threading.Event, times: list[float]) -> None:
    """Connect again and again until `stop`; keep how long each took, in ms."""
    while not stop.is_set():
        began = time.perf_counter()
        uri = f"amqp://guest:guest@127.0.0.1:{port}"
        with blocking.connect(uri, recover=False) as connection:
            connection.channel()
            times.append((time.perf_counter() - began) * 1000)


def dribble(kinds: dict[str, Peers]) -> None:
    """Send a byte of each each second until all are cut off, or for so long.

    In between it waits for the end of each, so that the moment is that of the cut.
    """
    until = time.monotonic() + SECONDS_MAX
    with select.epoll() as poll:
        of: dict[int, tuple[Peers, socket.socket]] = {}
        for peers in kinds.values():
            for sock in peers.open:
                of[sock.fileno()] = (peers, sock)
                poll.register(sock, select.EPOLLIN)
        while any(peers.open for peers in kinds.values()) and time.monotonic() < until:
            core = time.monotonic() + 1
            for peers in kinds.values():
                peers.send()
            while (left := core - time.monotonic()) > 0:
                for number, _ in poll.poll(left):
                    peers, sock = of[number]
                    if sock in peers.open:
                        peers.look(sock)


def measure(directory: Path, count: int) -> dict[str, object]:
    """Run a broker and the peers; return what came of it."""
    pki = Pki(directory)
    third = count // 3
    with pki.broker_process(directory / "data") as process:
        tls = port_of(process)
        with blocking.connect(process.uri) as connection:
            http = int(str(connection.server_properties["http_port"]))
        kinds = {
            # Behind the header the frame of a method begins, which never ends.
            "AMQP": Peers(process.port, b"AMQP\0\0\x09\1\1\0\0\0\0\x0f\xff" + bytes(1000), third),
            "TLS": Peers(tls, client_hello(pki.trusting()), third),
            "HTTP": Peers(http, b"GET /api/overview HTTP/1.1\r\nX-A: " + b"a" * 1000, third),
        }
        stop, times = threading.Event(), list[float]()
        client = threading.Thread(target=connects, args=(process.port, stop, times))
        client.start()
        dribble(kinds)
        stop.set()
        client.join()
    return {
        "peers": 3 * third,
        "cut": {kind: len(peers.cut) for kind, peers in kinds.items()},
        "left": {kind: len(peers.open) for kind, peers in kinds.items()},
        "last_cut_seconds": {kind: max(peers.cut, default=None) for kind, peers in kinds.items()},
        "connects": len(times),
        "p99_ms": statistics.quantiles(times, n=100)[98],
        "max_ms": max(times),
    }


def main() -> int:
    """Print what came of it; return 0 where the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peers", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="leveret-slow-") as directory:
        found = measure(Path(directory), options.peers)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    last = found["last_cut_seconds"]
    assert isinstance(last, dict)
    slow = [one for one in last.values() if one is None or one > CUT_SECONDS_TARGET]
    return 1 if slow or float(str(found["p99_ms"])) >= CONNECT_MS_TARGET else 0


if __name__ == "__main__":
    sys.exit(main())
