"""Requests over HTTP to a world: all routes of the management API, step by step.

`HttpClient` connects to the API like a client of its Unix socket listener, but without a socket.
Its event loop has no files, no threads and no timers to wait for, and measures each callback as a
call into the broker: the work of a route between two polls of the sockets.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any, Final, Self
from urllib.parse import quote

from leveret.broker.scheduler.link import Link
from leveret.broker.users.users import hash_password
from leveret.management.api import make_runner, routes
from leveret.management.chunk_source import ChunkSource
from leveret.management.connections.connection import OperatorConnection, OperatorConnections
from leveret.management.metrics.totals import Scrapes, Walks
from leveret.management.operator import Operator
from leveret.management.sampling.sampler import Sampler
from leveret.server.client_socket import ClientSocket
from leveret.server.direct.client import DirectClients
from leveret.session.admission import Admission
from leveret.session.settings import SessionSettings
from leveret.store.segments.segments import ChunkRef, read_if_readable
from support.costs.cost_gauge import Gauge, GaugedNode

#: Routes that are not requested: they wait for events, read the files of a whole directory, or only
#: hash.
_LEFT_OUT: Final = {"/api/log/stream", "/api/backup", "/api/auth/hash_password/{password}"}

ROUTES: Final = [(one.method, one.path) for one in routes() if one.path not in _LEFT_OUT]

#: A request fails if there is no answer after this many rounds.
_TURNS_MAX: Final = 20_000

#: Idle rounds before the client hangs up: it requested something that may come much later.
_QUIET_TURNS: Final = 8

_QUERIES: Final = (
    "", "", "?page=1&page_size=100", "?page=1&sort=name", "?page=1&page_size=500&sort=messages",
    "?sort=vhost&sort_reverse=true", "?page=1&name=.*1&use_regex=true", "?columns=name,arguments",
    "?page=2&page_size=10&name=q", "?offset=0&count=10", "?timestamp=0", "?from=0&to=100000",
)  # fmt: skip

_PART: Final = re.compile(r"\{(\w+)\}")


class _NoFiles:
    """Replaces the selector of a loop: nothing ever becomes ready."""

    def select(self, _timeout: float | None = None) -> list[Any]:
        """Return at once."""
        return []


class MeasuredLoop(asyncio.BaseEventLoop):
    """An event loop with measured callbacks."""

    def __init__(self, node: GaugedNode) -> None:
        super().__init__()
        self._selector = _NoFiles()
        self._node = node

    def __del__(self) -> None:
        """Do nothing: there are no files to close."""

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no events."""

    def call_soon(  # type: ignore[override]  # the loop's own has a tuple of types
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback, to be measured."""
        return super().call_soon(self._measure, partial(callback, *args), context=context)

    def _measure(self, call: Callable[[], Any]) -> None:
        self._node.measure("http", call)

    def core(self) -> None:
        """Call the ready callbacks."""
        self.stop()
        self.run_forever()

    def is_idle(self) -> bool:
        """Return whether nothing is ready."""
        return not self._ready  # type: ignore[attr-defined]


class _Transport(asyncio.Transport):
    """The broker's end of a connection; its output is only counted."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0
        self.head = b""
        self.over = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not self.head:
            self.head = bytes(data[:64])
        self.written += len(data)

    def is_closing(self) -> bool:
        return self.over

    def close(self) -> None:
        self.over = True

    def abort(self) -> None:
        self.over = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0


class _Effects:
    """Replaces the runner of a process: the node runs a round after each one of the loop."""

    def __init__(self, node: GaugedNode) -> None:
        self.node = node

    def broken(self, bug: BaseException) -> None:
        """Handle a failure, which is not expected here."""
        raise bug

    def now(self) -> int:
        """Update the core's time."""
        return self.node.now()

    def run(self) -> None:
        """Do nothing: effects run after this callback."""

    def add(self, link: Link, shell: ClientSocket) -> None:
        """Add a connection without a socket."""
        self.node.peers[link] = shell  # type: ignore[assignment]

    def remove(self, link: Link) -> None:
        """Remove a connection."""
        self.node.peers.pop(link, None)


class HttpClient:
    """The operator of a node's broker."""

    def __init__(self, node: GaugedNode) -> None:
        self.node = node
        self.loop = MeasuredLoop(node)
        #: The number of answers with each status.
        self.statuses: Counter[int] = Counter()
        self._syncs: list[asyncio.Future[None]] = []
        effects = _Effects(node)
        direct = DirectClients(effects, node.broker, SessionSettings("test"), node.tokens)
        walks = Walks(node.broker, node.clock)
        self._sampler = Sampler(walks)
        operator = Operator(
            node.now, self._durable, _hashed, _held, _released, effects.broken,
            self._sampler, direct=direct.channel,
            scrapes=Scrapes(walks, "rabbitmq", "3.13.7"),
        )  # fmt: skip
        log = _said
        chunks = ChunkSource(self._read_part)
        self._runner = make_runner(node.broker, operator, chunks, node.clock, log)
        with node.gauge.unmeasured():
            setup = self.loop.create_task(self._runner.setup())
            while not setup.done():
                self.loop.core()
        assert self._runner.server is not None
        admission = Admission(1 << 20)
        self._connections = OperatorConnections(self._runner.server, admission, log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _durable(self) -> None:
        waits: asyncio.Future[None] = self.loop.create_future()
        self._syncs.append(waits)
        await waits

    async def _read_part(self, _owner: int, ref: ChunkRef, position: int, size: int) -> bytes:
        return read_if_readable(self.node.disk, ref)[position : position + size]

    def ask(self, method: str, path: str, body: object = None) -> int:
        """Send a request and wait for the answer; return its status, 0 for no answer."""
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        raw = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        transport = _Transport()
        opened: list[OperatorConnection] = []

        def begin() -> None:
            protocol, _ = self._connections.make("")
            opened.append(protocol)
            protocol.connection_made(transport)
            protocol.data_received(raw)

        self.loop.call_soon(begin)
        self._serve(transport)
        self.loop.call_soon(opened[0].connection_lost, None)
        while not self.loop.is_idle():
            self._core()
        status = int(transport.head[9:12] or 0)
        self.statuses[status] += 1
        return status

    def close(self) -> None:
        """End the API and its background tasks, so that nothing is left in the loop."""
        with self.node.gauge.unmeasured():
            self._sampler.stop()
            ending = self.loop.create_task(self._runner.cleanup())
            while not (ending.done() and self.loop.is_idle()):
                self.loop.core()
        self.loop.close()

    def _serve(self, transport: _Transport) -> None:
        quiet = 0
        for _ in range(_TURNS_MAX):
            if transport.over or quiet > _QUIET_TURNS:
                return
            quiet = quiet + 1 if self.loop.is_idle() else 0
            self._core()
        raise AssertionError("the answer does not come")

    def _core(self) -> None:
        self.loop.core()
        self.node.run()
        if self.loop.is_idle():
            # A waiting route waits for the disk.
            self.node.sync()
            syncs, self._syncs = self._syncs, []
            for waits in syncs:
                if not waits.done():
                    waits.set_result(None)


async def _hashed(password: bytes) -> bytes:
    return hash_password(b"salt", password)


async def _held() -> None:
    """Do nothing: nobody removes files of a disk in memory."""


def _released() -> None:
    """Do nothing: no files were held."""


def _said(_level: str, _text: str) -> None:
    """Drop a log line."""


# -- requests --------------------------------------------------------------------------------------


def http_request(
    http: HttpClient, draw: random.Random, queue: str, exchange: str, gauge: Gauge
) -> None:
    """Send a random request; the names are those of a world."""
    method, path = draw.choice(ROUTES)
    # Keep the world's own vhost and users, or few requests would succeed afterwards.
    ends = method == "DELETE" and path == "/api/vhosts/{vhost}"
    vhosts = ["more0", "more1", "more2"] if ends else ["/", "/", "/", "/", "more0", "none"]
    users = ["u1", "u2", "user1", "none"] + (["other"] if method == "GET" else [])
    parts: dict[str, Callable[[], str]] = {
        "vhost": lambda: draw.choice(vhosts),
        "name": lambda: _named(path, draw, queue, exchange),
        "queue": lambda: queue,
        "source": lambda: exchange or "amq.default",
        "exchange": lambda: exchange or "amq.default",
        "kind": lambda: draw.choice("qqqe"),
        "end": lambda: draw.choice(["source", "destination"]),
        "destination": lambda: draw.choice([queue, queue, exchange or "amq.fanout"]),
        "props": lambda: draw.choice(["~", "k", "1"]),
        "user": lambda: draw.choice(users),
        "component": lambda: "operator_policy",
        "id": lambda: "1",
        "consumer": lambda: "named",
        "sink": lambda: "sink0",
        "publisher": lambda: "p1",
        "connection": lambda: "none",
        "channel": lambda: "none",
    }
    filled = _PART.sub(lambda part: quote(parts.get(part[1], lambda: "x")(), safe=""), path)
    query = draw.choice(_QUERIES) if method == "GET" else ""
    gauge.what = f"{method} {path}{query}"
    http.ask(method, filled + query, _body(method, path, draw, queue))


def _named(path: str, draw: random.Random, queue: str, exchange: str) -> str:
    """Return a name for the last part of a path."""
    if "/exchanges/" in path:
        return exchange or "amq.default"
    if "/super-streams/" in path:
        return draw.choice(["super", "super2", "super3"])
    if "/streams/" in path:
        return draw.choice(["stream", "stream", queue])
    if "policies" in path or "parameters" in path:
        return f"p{draw.randrange(20)}"
    if "limits" in path:
        return draw.choice(["max-queues", "max-connections", "max-bindings"])
    return queue


def _body(method: str, path: str, draw: random.Random, queue: str) -> object:
    """Return a body that the route may accept."""
    for ending, make in _BODIES.items():
        if path.endswith(ending):
            return make(draw, queue)
    return {} if method in ("PUT", "POST") else None


def _policy(draw: random.Random, _queue: str) -> object:
    pattern = draw.choice([".*", "^q", "^deep", "(a|b|q)*[0-9]+"])
    definition = draw.choice([{"max-length": 100_000}, {"message-ttl": 60_000}, {"expires": 10**7}])
    return {"pattern": pattern, "definition": definition, "apply-to": "queues"}


def _get(draw: random.Random, _queue: str) -> object:
    count = draw.choice([1, 100, 10_000])
    mode = draw.choice(["ack_requeue_true", "ack_requeue_false", "reject_requeue_true"])
    return {"count": count, "ackmode": mode, "encoding": "auto", "truncate": 100}


def _publish(draw: random.Random, queue: str) -> object:
    headers = {"CC": [queue] * draw.choice([1, 300])} if draw.random() < 0.3 else {}
    key = draw.choice(["k", queue, ".".join("a" * 100)])
    return {
        "properties": {"headers": headers, "delivery_mode": 2}, "routing_key": key,
        "payload": "p" * draw.choice([0, 10, 10_000]), "payload_encoding": "string",
    }  # fmt: skip


def _permissions(draw: random.Random, _queue: str) -> object:
    pattern = draw.choice([".*", "^q"])
    return {"configure": ".*", "write": pattern, "read": ".*", "exchange": "amq.topic"}


#: Bodies by the end of the path.
_BODIES: Final[dict[str, Callable[[random.Random, str], object]]] = {
    "policies/{vhost}/{name}": _policy,
    "/{component}/{vhost}/{name}": lambda draw, queue: {"value": _policy(draw, queue)},
    "/queues/{vhost}/{name}": lambda draw, _: {"durable": draw.random() < 0.5, "arguments": {}},
    "/exchanges/{vhost}/{name}": lambda _draw, _queue: {"type": "topic", "arguments": {}},
    "/super-streams/{vhost}/{name}": lambda draw, _: {"partitions": draw.choice([1, 100, 1_024])},
    "/e/{source}/{kind}/{destination}": lambda draw, _: {
        "routing_key": draw.choice(["k", "1", "1000"]), "arguments": {},
    },
    "/get": _get,
    "/browse": lambda draw, _: {"count": draw.choice([1, 100]), "position": 1_000},
    "/rewind": lambda _draw, _queue: {"timestamp": 0},
    "/move": lambda draw, queue: {"to": draw.choice([queue, "deep"]), "count": 10_000},
    "/actions": lambda _draw, _queue: {"action": "sync"},
    "/publish": _publish,
    "/route": lambda _draw, queue: {"routing_key": queue, "headers": {}},
    "/users/{user}": lambda _draw, _queue: {"password_hash": "", "tags": "management"},
    "/bulk-delete": lambda _draw, _queue: {"users": ["u1", "u2"]},
    "/permissions/{vhost}/{user}": _permissions,
    "limits/{vhost}/{name}": lambda draw, _: {"value": draw.choice([-1, 1_000_000])},
    "limits/{user}/{name}": lambda draw, _: {"value": draw.choice([-1, 1_000_000])},
    "/cluster-name": lambda _draw, _queue: {"name": "costs"},
    "/global-parameters/{name}": lambda _draw, _queue: {"value": {"a": 1}},
}  # fmt: skip
