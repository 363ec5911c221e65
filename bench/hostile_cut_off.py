"""What a user of the HTTP API does with long answers that nobody reads, and with long messages."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import struct
from typing import Final

from target import Target

from support.wire import raw

#: Requests that are cut off.
REQUESTS: Final = 3000

#: The messages that each of them is to be answered with: 4 MB.
MESSAGES: Final = 200
MESSAGE_BYTES: Final = 20_000

#: A message that is got and moved by HTTP.
LONG_BYTES: Final = 100 * 1024 * 1024

#: How long they take at least on a machine that does nothing else.
SECONDS: Final = {"cut-off": 25.0}

_AUTHORIZATION: Final = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}

#: Linger for no time: the broker gets a reset.
_RESET: Final = struct.pack("ii", 1, 0)


def attack_cut_off(target: Target) -> None:
    """3,000 requests with answers of 4 MB whose client hangs up before, meanwhile or after."""
    with target.log_in() as connection:
        connection.open_channel(1)
        connection.declare(1, "long")
        for _ in range(MESSAGES):
            connection.send(raw.publish(1, "", "long", bytes(MESSAGE_BYTES)))
        connection.sync(1)
    body = json.dumps({"count": MESSAGES})
    lines = [
        "POST /api/queues/tenant/long/browse HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: {_AUTHORIZATION['Authorization']}",
        f"Content-Length: {len(body)}",
    ]
    request = "\r\n".join([*lines, "", body]).encode()
    for number in range(REQUESTS):
        if target.over:
            break
        with contextlib.suppress(OSError), target.dial(target.http_port) as sock:
            sock.sendall(request)
            if number % 3:
                target.nap(0.001 * (number % 5))
            if number % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


def attack_long_messages(target: Target) -> None:
    """A message of 100 MB that is got, cut to a byte, and moved from queue to queue by HTTP."""
    with target.log_in() as connection:
        connection.open_channel(1)
        connection.declare(1, "one")
        connection.declare(1, "other")
        connection.send(raw.publish(1, "", "one", bytes(LONG_BYTES)))
        connection.sync(1)
    source, to = "one", "other"
    got = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 1}
    while not target.over:
        _ask(target, f"/api/queues/tenant/{source}/get", got)
        _ask(target, f"/api/queues/tenant/{source}/move", {"to": to, "count": 1})
        source, to = to, source


def _ask(target: Target, path: str, body: dict[str, object]) -> None:
    """Send a request and read its answer.  Raises: OSError."""
    connection = http.client.HTTPConnection("127.0.0.1", target.http_port, timeout=60)
    connection.request("POST", path, json.dumps(body), _AUTHORIZATION)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise OSError(f"{path} is answered by {answer.status}")
