"""What a user of the HTTP API does with many requests at once that ask for much."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from typing import Final

from target import Target

from support.wire import raw

#: Requests at once: as many as are let in.
REQUESTS: Final = 64

#: Queues that are listed, queues that a message would reach, and the size of a message.
LISTED: Final = 20_000
REACHED: Final = 60_000
MESSAGE_BYTES: Final = 20 << 20

_BATCH: Final = 1000

SETTINGS: Final = {
    "browse-large-at-once": {"memory_bytes_max": "1000000000"},
    "browse-large-few": {"memory_bytes_max": "1000000000"},
}

_LOGIN: Final = "Authorization: Basic " + base64.b64encode(b"guest:guest").decode()


def _request(method: str, path: str, body: object = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{_LOGIN}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def _repeat(target: Target, request: bytes) -> None:
    """Send a request again and again, and read its answers."""
    while not target.over:
        with contextlib.suppress(OSError), target.dial(target.http_port) as peer:
            peer.settimeout(60)
            peer.sendall(request)
            while peer.recv(1 << 20):
                pass


def _at_once(target: Target, request: bytes, count: int = REQUESTS) -> None:
    threads = [
        threading.Thread(target=_repeat, args=(target, request), daemon=True) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    target.nap(1e9)


def _hold(target: Target, request: bytes, count: int) -> None:
    """Send requests whose answers nobody reads."""
    peers = []
    for _ in range(count):
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", target.http_port))
        peer.sendall(request)
        peers.append(peer)
    target.nap(1e9)


def _queues(connection: raw.Connection, count: int, exchange: str = "") -> None:
    """Declare queues, and bind them to an exchange."""
    for first in range(0, count, _BATCH):
        requests = []
        for number in range(first, first + _BATCH):
            queue = f"listed-{number}"
            requests.append(
                raw.method(1, "queue.declare", queue=queue, exclusive=True, no_wait=True)
            )
            if exchange:
                requests.append(
                    raw.method(1, "queue.bind", queue=queue, exchange=exchange, no_wait=True)
                )
        connection.send(b"".join(requests))
        connection.sync(1)


def _lists(target: Target, path: str) -> None:
    with target.log_in() as connection:
        connection.open_channel(1)
        _queues(connection, LISTED)
        _at_once(target, _request("GET", path))


def attack_lists_at_once(target: Target) -> None:
    """64 lists of 20,000 queues at once, again."""
    _lists(target, "/api/queues")


def attack_lists_in_order_at_once(target: Target) -> None:
    """64 pages at once of 20,000 queues that are put in order by their rates, again."""
    order = "sort=message_stats.publish_details.rate"
    _lists(target, f"/api/queues?page=1&page_size=500&{order}")


def attack_dry_runs(target: Target) -> None:
    """64 dry runs at once to 60,000 queues, again."""
    with target.log_in() as connection:
        connection.open_channel(1)
        connection.call(1, "exchange.declare", exchange="wide", type="fanout")
        _queues(connection, REACHED, "wide")
        _at_once(target, _request("POST", "/api/exchanges/tenant/wide/route", {"routing_key": "k"}))


def _large(target: Target, count: int) -> None:
    with target.log_in() as connection:
        connection.open_channel(1)
        connection.declare(1, "large", durable=False)
        connection.send(raw.publish(1, "", "large", bytes(MESSAGE_BYTES)))
        connection.sync(1)
        _hold(target, _request("POST", "/api/queues/tenant/large/browse", {"count": 1}), count)


def attack_browse_large_few(target: Target) -> None:
    """8 answers with a message of 20 MB of NUL bytes that nobody reads."""
    _large(target, 8)


def attack_browse_large_at_once(target: Target) -> None:
    """64 of them."""
    _large(target, REQUESTS)


def attack_browse_and_read(target: Target) -> None:
    """64 answers at once with a message of 20 MB, read as fast as they come, again."""
    with target.log_in() as connection:
        connection.open_channel(1)
        connection.declare(1, "large", durable=False)
        connection.send(raw.publish(1, "", "large", bytes(MESSAGE_BYTES)))
        connection.sync(1)
        _at_once(target, _request("POST", "/api/queues/tenant/large/browse", {"count": 1}))


SECONDS: Final = {"dry-runs": 25.0, "lists-at-once": 20.0, "lists-in-order-at-once": 20.0}
