"""A request that its client hangs up on leaves nothing that only the collector would free.

Objects that were there for a while are collected in the oldest generation, and so nearly never.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import struct
from collections import Counter
from collections.abc import Iterator

import pytest

from leveret.app.embedded import Handles
from leveret.client.blocking import connect
from leveret.management.sampling.recent_log import LogLine
from leveret.testing import Broker
from support.node.uncollected import no_collector, objects_of

#: Where the objects of a request and its connection are defined.
ROOMS = ("aiohttp.", "leveret.management.", "leveret.server.direct.", "leveret.session.")

#: Linger for no time: the broker gets a reset.
RESET = struct.pack("ii", 1, 0)

#: Looks at the memory, between which the loop has turns, until a request must be gone: what waited
#: for the disk hears of it from a thread.
LOOKS = 50
TURNS = 20


def request(
    method: str, path: str, body: bytes = b"", length: int = -1, who: str = "guest"
) -> bytes:
    """Return a request of a user whose password is guest."""
    login = base64.b64encode(f"{who}:guest".encode()).decode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n"
    size = len(body) if length < 0 else length
    return f"{head}Content-Length: {size}\r\n\r\n".encode() + body


COUNT = json.dumps({"count": 100}).encode()
DURABLE = json.dumps({"durable": True}).encode()

#: What waits for a disk that is full.
UNSYNCED = "a declare that is not synced"

#: What is sent, and whether an answer begins that is not read.
CASES = {
    "a refused login that waits": (request("GET", "/api/overview", who="nobody"), False),
    "a body that does not come": (request("POST", "/api/queues/%2F/q/get", b"{", 100), False),
    "a wait for a message": (request("GET", "/api/streams/%2F/s/chunks?wait_ms=60000"), False),
    UNSYNCED: (request("PUT", "/api/queues/%2F/late", DURABLE), False),
    "a log that goes on": (request("GET", "/api/log/stream"), True),
    "a long answer": (request("POST", "/api/queues/%2F/q/browse", COUNT), True),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A running broker whose queue has more messages than a socket's buffers."""
    with Broker(http=True, login_failure_delay_ms=60_000) as running:
        with connect(running.url) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
            channel.confirm_select()
            for _ in range(100):
                channel.publish(bytes(100_000), routing_key="q")
        yield running


def in_memory() -> Counter[str]:
    """How many objects of requests there are, by their types."""
    found = objects_of(*ROOMS)
    # The log is kept.
    del found[LogLine.__name__]
    return found


async def asked(handles: object) -> None:
    """Wait until a request is being answered."""
    while not in_memory()["Request"]:  # noqa: ASYNC110 (nothing says so)
        await asyncio.sleep(0)


async def left(handles: object) -> Counter[str]:
    """Return what is in memory when all connections are gone."""
    assert isinstance(handles, Handles)
    listeners = handles._node.listeners  # noqa: SLF001 (no other one has it)
    await handles._engine.runner.durable()  # noqa: SLF001 (as above)
    while listeners.admission.slots:  # noqa: ASYNC110 (nothing says so)
        await asyncio.sleep(0)
    for _ in range(LOOKS):
        for _core in range(TURNS):
            await asyncio.sleep(0)
        found = in_memory()
        if not found["Request"]:
            break
    return found


def cut_off(broker: Broker, case: str) -> Counter[str]:
    """Send a request and hang up; return what is in memory then."""
    data, is_answered = CASES[case]
    port = int(broker.http_url.rpartition(":")[2])
    full = broker.fill_disk() if case == UNSYNCED else contextlib.nullcontext()
    with full, socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(data)
        if is_answered:
            assert sock.recv(1)
        broker._call(asked)  # noqa: SLF001 (it is no other one's)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return broker._call(left)  # noqa: SLF001 (as above)


@pytest.mark.parametrize("case", CASES)
def test_it_leaves_nothing(broker: Broker, case: str) -> None:
    cut_off(broker, case)
    with no_collector():
        before = in_memory()
        assert cut_off(broker, case) - before == Counter()
