"""A broker in memory for hostile requests: over HTTP through its real listeners, and over AMQP.

The core runs on a disk in memory (`core.Node`), so that its journal is visible at once and a
restart takes milliseconds; the HTTP API is the real one on a Unix socket and on TCP.  After each
case either nothing has changed and nothing was journaled, or the change is permanent: `survives`
reports differences after a replay of the journal, a checkpoint, a stop, and an import into an empty
broker.

Invariants: `faults` holds everything that went wrong, with its case; one seed gives one run.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from leveret.app.parts import SystemClock
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.definitions.imports import import_definitions
from leveret.broker.ownership import key_of
from leveret.broker.policies.policy import make_policy
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.scheduler.link import Link
from leveret.broker.sinks.area import area_of
from leveret.broker.stream.stream import Stream
from leveret.broker.users.users import User, hash_password
from leveret.cli import exits
from leveret.errors import NotFound
from leveret.management.backup.backups import Backup, Backups
from leveret.management.backup.source import FileSource, Listed, listed
from leveret.management.chunk_source import ChunkSource
from leveret.management.connections.address import ListenAddress
from leveret.management.definitions import read_definitions, write_definitions
from leveret.management.keeper import GateKeeper
from leveret.management.listening.doors import Doors
from leveret.management.listening.listener import UnixListener
from leveret.management.listening.tcp import TcpListener
from leveret.management.metrics.totals import Scrapes, Walks
from leveret.management.operator import Operator
from leveret.management.sampling.sampler import Sampler
from leveret.message import Address, Message
from leveret.names import Name
from leveret.server.acceptor import accepting
from leveret.server.client_socket import ClientSocket
from leveret.server.direct.client import DirectClients
from leveret.session.settings import RABBITMQ_VERSION
from leveret.store.disks.recording import RecordingDisk
from leveret.store.listing import read_some
from leveret.store.segments.segments import ChunkRef, read_if_readable
from support.hostile.hostile_commands import Case, is_one_line, run_command
from support.hostile.hostile_methods import COMMIT_KEY
from support.hostile.hostile_requests import Request
from support.node.core import Node, declare_super_stream, held
from support.node.delayed import ids
from support.node.exporting import export_definitions
from support.wire.raw_codec import properties, publish

#: The statuses of answers to a client's fault.
REFUSED: Final = range(400, 500)

#: The maximum number of faults that are described.
FAULTS_MAX: Final = 50

AUTHORIZATION: Final = b"Basic " + base64.b64encode(b"guest:guest")


_COUNTS: Final = (
    "cases", "taken", "refused", "differences", "failures", "restarts", "checkpoints",
)  # fmt: skip


@dataclass
class Tally:
    """The outcome of the cases; `differences` are faults of state, `failures` answers of 500."""

    cases: int = 0
    taken: int = 0
    refused: int = 0
    differences: int = 0
    failures: int = 0
    restarts: int = 0
    checkpoints: int = 0
    faults: list[str] = field(default_factory=list)
    routes: dict[str, int] = field(default_factory=dict)

    def fault(self, text: str) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(text)

    def differs(self, text: str) -> None:
        self.differences += 1
        self.fault(text)

    def fails(self, text: str) -> None:
        self.failures += 1
        self.fault(text)

    def counted(self, what: str, is_taken: bool) -> None:
        self.cases += 1
        self.taken += is_taken
        self.refused += not is_taken
        self.routes[what] = self.routes.get(what, 0) + 1

    def add(self, other: Tally) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for text in other.faults:
            self.fault(text)
        for what, count in other.routes.items():
            self.routes[what] = self.routes.get(what, 0) + count


# -- the state -------------------------------------------------------------------------------------


def exported(node: Node) -> bytes:
    """The definitions as a file."""
    return write_definitions(export_definitions(node.broker), RABBITMQ_VERSION)


def others(node: Node) -> str:
    """The durable state that is not in definitions: offsets, sinks, messages, publishers."""
    found: list[Any] = []
    for vhost in node.broker.vhosts.values():
        for place, sink in area_of(vhost).sinks.by_place.items():
            found.append(("sink", vhost.name, place, int(sink.batch), key_of(sink.owner)))
        found += [
            ("delayed", exchange.name, sorted(ids(exchange.delayed)))
            for exchange in vhost.exchanges.by_name.values()
            if exchange.durable and exchange.delayed is not None
        ]
        for queue in vhost.queues.by_name.values():
            if not queue.recorded:
                continue
            numbers = {} if queue.target.publishers is None else queue.target.publishers.by_name
            known = sorted(
                (name, int(one.number), key_of(one.owner)) for name, one in numbers.items()
            )
            if isinstance(queue, Stream):
                owners = queue.offsets.owners
                offsets = sorted(
                    (name, offset, key_of(owners[name]))
                    for name, offset in queue.offsets.stored.items()
                )
                found.append((vhost.name, queue.name, int(queue.next_offset), offsets, known))
            elif isinstance(queue, WaitingQueue):
                kept = [int(item.sequence) for item in held(queue)]
                found.append((vhost.name, queue.name, kept, known))
    return repr(sorted(found, key=repr))


def digest(node: Node) -> tuple[bytes, str]:
    """The state that must be unchanged after a refusal."""
    return exported(node), others(node)


def durable(data: bytes) -> dict[str, list[str]]:
    """The definitions of a file that survive a restart, sorted."""
    found = json.loads(data)
    for section in ("queues", "exchanges"):
        found[section] = [row for row in found[section] if row["durable"]]
    queues = {(row["vhost"], row["name"]) for row in found["queues"]}
    exchanges = {(row["vhost"], row["name"]) for row in found["exchanges"]}

    def stays(row: dict[str, Any]) -> bool:
        source, destination = row["source"], row["destination"]
        ends = exchanges if row["destination_type"] == "exchange" else queues
        is_kept = source.startswith("amq.") or (row["vhost"], source) in exchanges
        own = row["destination_type"] == "exchange" and destination.startswith("amq.")
        return is_kept and (own or (row["vhost"], destination) in ends)

    found["bindings"] = [row for row in found["bindings"] if stays(row)]
    return rows(found)


def rows(found: dict[str, Any]) -> dict[str, list[str]]:
    """The rows of each section as text, sorted."""
    return {
        section: sorted(json.dumps(row, sort_keys=True) for row in entries)
        for section, entries in found.items()
        if isinstance(entries, list)
    }


def difference(before: dict[str, list[str]], after: dict[str, list[str]]) -> str:
    """The difference of two sets of rows; empty if there is none."""
    said = []
    for section in sorted(set(before) | set(after)):
        one, other = set(before.get(section, [])), set(after.get(section, []))
        if one != other or len(before.get(section, [])) != len(after.get(section, [])):
            said.append(f"{section}: gone {sorted(one - other)[:3]}, new {sorted(other - one)[:3]}")
    return "; ".join(said)[:2_000]


class _Shell:
    """The shell of a client within the process, with the interface for the simulated broker."""

    def __init__(self, shell: ClientSocket) -> None:
        self.connection = shell.connection
        self.flush = shell.flush

    def check_read(self) -> None:
        """Do nothing: there is no socket."""


class _Runs:
    """Runs the effects of a simulated broker, syncing at once."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.now = node.now
        self.run = node.sync

    def broken(self, bug: BaseException) -> None:
        """Record an unexpected exception."""
        raise bug

    def add(self, link: Link, shell: ClientSocket) -> None:
        """Add the shell of a connection."""
        peers: dict[Link, Any] = dict(self._node.peers)
        peers[link] = _Shell(shell)
        self._node.peers = peers

    def remove(self, link: Link) -> None:
        """Remove the shell of a connection."""
        self._node.peers = {one: peer for one, peer in self._node.peers.items() if one is not link}


# -- the broker ------------------------------------------------------------------------------------


def prepare(node: Node) -> None:
    """Create the objects of the cases that do not exist."""
    _prepare_users(node)
    vhost = node.broker.vhosts["h"]
    declared: dict[str, dict[str, object]] = {
        "q": {},
        "kept": {"x-retain-acked": "1D"},
        "s": {"x-queue-type": "stream"},
        "stage": {"x-staging-sink": "sink", "x-staging-batch": 1},
    }
    for name, arguments in declared.items():
        if name not in vhost.queues.by_name:
            vhost.queues.declare(None, Name(name), QueueAttributes(True, arguments=arguments))
    exchanges: dict[str, tuple[str, dict[str, object]]] = {
        "e": ("x-delayed-message", {"x-delayed-type": "topic"}),
        "hash": ("x-consistent-hash", {}),
        "history": ("x-recent-history", {"x-recent-history-length": 5}),
    }
    for name, (kind, arguments) in exchanges.items():
        if name not in vhost.exchanges.by_name:
            vhost.exchanges.declare(Name(name), kind, True, False, False, arguments)
    if "parts" not in vhost.exchanges.by_name and not any(
        one.startswith("parts-") for one in vhost.queues.by_name
    ):
        declare_super_stream(
            vhost, Name("parts"), {"x-super-stream-partitions": 3, "x-max-age": "1D"}
        )
    stream = vhost.queues.by_name["s"]
    if isinstance(stream, Stream) and "reader" not in stream.offsets.stored:
        stream.offsets.set("reader", 0)
    _prepare_used(node)
    node.sync()


def _prepare_used(node: Node) -> None:
    """Create the objects that clients create by use: a sink, and a publisher of the queue."""
    vhost = node.broker.vhosts["h"]
    queue, owner = vhost.queues.by_name["q"], node.broker.users.owner("u")
    area = area_of(vhost)
    if area.sinks.known("sink", "d") is None:
        area.decide("sink", "d", 0, [], "fail", owner)
    if queue.target.publishers is None or queue.target.publishers.known(b"p") is None:
        numbered = properties(headers={"x-publisher": "p", "x-publishing-id": 1}, delivery_mode=2)
        message = Message(Address(b"", b"q"), numbered, b"m", node.now(), True, False, True)
        vhost.publish(message, [queue.target], owner)


def _prepare_users(node: Node) -> None:
    """Create the vhosts and users that the cases need, with their settings."""
    broker, users = node.broker, node.broker.users
    for name in ("/", "h"):
        vhost = broker.add_vhost(name)
        vhost.metadata.set(
            {"default_queue_type": "", "strict_keys": False, "protected_from_deletion": False}
        )
        vhost.limits.set({"max-queues": -1})
        for policy in list(vhost.policies.by_name):
            if policy != "p":
                vhost.policies.clear(policy)
        for policy in list(vhost.policies.operator_by_name):
            if policy != "p":
                vhost.policies.clear(policy, operator=True)
    vhost = broker.vhosts["h"]
    if "p" not in vhost.policies.by_name:
        vhost.policies.set(make_policy("p", "^x", {"max-length": 5}))
    if "p" not in vhost.policies.operator_by_name:
        vhost.policies.set(make_policy("p", "^x", {"max-length": 5}, operator=True))
    if "g" not in broker.parameters.global_values:
        broker.parameters.set_global("g", 1)
    for name in ("guest", "u"):
        if not users.verify(name, name.encode()):
            users.put(User(name, hash_password(b"salt", name.encode()), ["administrator"]))
        if users.limits.get(name):
            users.clear_limits(name)
        for vhost_name in ("/", "h"):
            known = users.permissions.get((name, vhost_name))
            if known is None or {known.configure, known.write, known.read} != {".*"}:
                users.set_permission(name, vhost_name, ".*", ".*", ".*")
    if len(users.topic_permissions.get(("u", "h"), {})) != 1:
        with contextlib.suppress(NotFound):
            users.clear_topic_permission("u", "h")
        users.set_topic_permission("u", "h", "e", ".*", ".*")


def backups_of(node: Node) -> Backups:
    """The backups of a broker in memory, without a limit on their number."""

    async def held() -> None:
        return

    async def looked() -> Listed | None:
        return listed(node.disk)

    async def read(path: str, at: int, size: int) -> bytes:
        return read_some(node.disk, path, at, size)

    async def durable_() -> int:
        node.sync()
        return int(node.journal.durable_group)

    source = FileSource(held, lambda: None, looked, read)
    return Backups(
        source, durable_, SystemClock(), lambda *_: None, "secure", lambda _address: True, 1 << 30
    )


class HostileNode:
    """One broker and its listeners, for one batch of cases."""

    def __init__(self, directory: Path, tally: Tally) -> None:
        self.tally = tally
        self.node = Node(window_bytes=-1)
        self._directory = directory
        self._log: list[str] = []
        prepare(self.node)
        self.backups = backups_of(self.node)
        self._publish()

    def _publish(self) -> None:
        """Publish to each kind of queue, and commit a batch of a sink."""
        peer = self.node.connect_as("u", 1, vhost="h")
        committed = {"sink": "sink", "destination": "d", "batch": 0, "queues": []}
        peer.send(
            publish(1, "", "q", b"waits", delivery_mode=2),
            publish(1, "", "s", b"stays"),
            publish(1, "e", "k", b"later", headers={"x-delay": 1_000_000}),
            publish(1, "", COMMIT_KEY, json.dumps(committed).encode()),
        )
        self.node.sync()
        assert not peer.take()
        peer.lose()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen on the Unix socket and on TCP."""
        node = self.node

        async def durable_() -> None:
            node.sync()

        async def hashed(password: bytes) -> bytes:
            # Argon2 is slow on purpose, and not under test here.
            return b"$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$" + base64.b64encode(password[:9])

        async def nothing() -> None:
            return

        async def judged(user: str, password: bytes, _address: str) -> bool:
            return node.broker.users.verify(user, password)

        async def part(_owner: int, ref: ChunkRef, start: int, size: int) -> bytes:
            return read_if_readable(node.disk, ref)[start : start + size]

        def broken(bug: BaseException) -> None:
            self.tally.fails(f"this stops the broker: {bug!r}")

        sampler = Sampler(Walks(node.broker, SystemClock()))
        scrapes = Scrapes(sampler.walks, "rabbitmq", "3.13.7")
        operator = Operator(
            node.now,
            durable_,
            hashed,
            nothing,
            lambda: None,
            broken,
            sampler,
            lambda: {"sockets_used": 1, "sockets_total": 1000},
            scrapes,
            lambda: [ListenAddress("amqp", "127.0.0.1", 5672)],
            DirectClients(_Runs(node), node.broker, node.settings, node.tokens).channel,
            backups=self.backups,
        )
        chunks = ChunkSource(part)
        keeper = GateKeeper(judged, lambda _address: True, ("guest",), 0)
        socket = self._directory / "management.sock"
        doors = Doors(accepting(self._said), SystemClock(), accepting(self._said))
        broker = node.broker
        unix = UnixListener(socket, broker, operator, chunks, doors, self._said)
        tcp = TcpListener(broker, operator, chunks, doors, keeper, self._said)
        unix.start()
        port = tcp.bind("127.0.0.1", 0)
        tcp.start()
        self.unix, self.tcp = Wire(path=socket), Wire(port=port)
        try:
            yield
        finally:
            self.unix.close()
            self.tcp.close()
            self.backups.close()
            sampler.stop()
            await unix.stop()
            await tcp.stop()

    def _said(self, level: str, text: str) -> None:
        if level == "error":
            self._log.append(text)

    def keep_backup(self, name: str) -> None:
        """Create a backup of that name."""
        found = listed(self.node.disk)
        assert found is not None
        if name not in self.backups.by_id:
            self.backups.by_id[name] = Backup(name, "by nobody", found, 1, 1, 1)

    async def ask(self, request: Request, over_tcp: bool) -> None:
        """Send one request and check the outcome."""
        node = self.node
        self.keep_backup("b")
        before, group = digest(node), int(node.journal.last_group)
        wire = self.tcp if over_tcp else self.unix
        try:
            status, answer = await wire.ask(request.method, request.path, request.body)
        except (OSError, EOFError, ValueError) as error:
            self.tally.fails(f"{request}: no answer: {error!r}")
            return
        what = " ".join(request.route)
        if is_failure(request, status):
            self.tally.fails(f"{request}: {status} {answer[:300]!r} {self._log[-1:]}")
        is_taken = 200 <= status < 300
        self.tally.counted(what, is_taken)
        if not is_taken:
            if node.journal.has_records() or int(node.journal.last_group) != group:
                self.tally.differs(f"{request}: {status}, and something was journaled")
            if digest(node) != before:
                self.tally.differs(f"{request}: {status}, and something changed")
            if not is_reasoned(status, answer):
                self.tally.differs(f"{request}: {status} without a reason: {answer[:200]!r}")
        else:
            with contextlib.suppress(ValueError):
                json.loads(answer, parse_constant=_no_constant)
        node.sync()

    async def order(self, arguments: Case) -> None:
        """Run a command of `leveret ctl` and check the outcome."""
        node = self.node
        before, group = digest(node), int(node.journal.last_group)
        what = f"ctl {arguments[0]}"
        shown = f"ctl {' '.join(ascii(one)[:200] for one in arguments)}"
        loop = asyncio.get_running_loop()
        try:
            code, _, said = await loop.run_in_executor(
                None, run_command, self._directory, arguments
            )
        except Exception as bug:  # noqa: BLE001 (a traceback is what a user would see)
            code, said = 1, ""
            self.tally.fails(f"{shown}: {bug!r}")
        self.tally.counted(what, code == 0)
        if code != 0:
            if node.journal.has_records() or int(node.journal.last_group) != group:
                self.tally.differs(f"{shown}: {code}, and something was journaled")
            if digest(node) != before:
                self.tally.differs(f"{shown}: {code}, and something changed")
            if code != exits.USAGE and not is_one_line(said):
                self.tally.differs(f"{shown}: {code}, and no single line: {said[:300]!r}")
            if "500" in said.split(":")[0] or "the broker answered 5" in said:
                self.tally.fails(f"{shown}: {said[:300]}")
        node.sync()

    # -- over AMQP ---------------------------------------------------------------------------------

    def send(self, name: str, data: bytes) -> None:
        """Send the bytes of one method on channel 1 of a new connection."""
        node = self.node
        peer = node.connect_as("u", 1, vhost="h")
        peer.take()
        before, group = digest(node), int(node.journal.last_group)
        try:
            peer.send(data)
            node.sync()
        except Exception as bug:  # noqa: BLE001 (this would have ended the broker)
            self.tally.fails(f"{name} {data[:200]!r}: {bug!r}")
            self.tally.counted(name, False)
            node.peers.pop(peer.connection, None)
            node.broker.links.pop(peer.connection, None)
            return
        closes = [got for got in peer.take() if got.name.endswith(".close")]
        self.tally.counted(name, not closes)
        for close in closes:
            if close.code in (541, 0):
                self.tally.fails(f"{name} {data[:200]!r}: {close.code} {close.text}")
            if digest(node) != before:
                self.tally.differs(f"{name} {data[:200]!r}: {close.code}, and something changed")
            if int(node.journal.last_group) != group:
                self.tally.differs(f"{name} {data[:200]!r}: {close.code}, and it was journaled")
        peer.lose()
        node.sync()

    # -- durable state -----------------------------------------------------------------------------

    def survives(self, label: str) -> None:
        """Check that the state is unchanged by each way of stopping, restarting and moving it."""
        node, tally = self.node, self.tally
        node.sync()
        told, more = durable(exported(node)), others(node)
        whole = rows(json.loads(exported(node)))
        try:
            again = Node(RecordingDisk(node.image()), begin=False)
            self._compare(f"{label}: journal", told, more, again)
            node.take_checkpoint()
            node.sync()
            self._compare(
                f"{label}: checkpoint", told, more, Node(RecordingDisk(node.image()), begin=False)
            )
            again.sync()
            again.take_checkpoint()
            self._compare(
                f"{label}: checkpoint after a replay", told, more,
                Node(RecordingDisk(again.image()), begin=False),
            )  # fmt: skip
            self._compare(
                f"{label}: stop", told, more, Node(RecordingDisk(again.stop()), begin=False)
            )
            empty = Node(begin=False)
            import_definitions(empty.broker, read_definitions(exported(node)), b"salt")
            empty.sync()
            if said := difference(whole, rows(json.loads(exported(empty)))):
                tally.differs(f"{label}: import: {said}")
            later = Node(RecordingDisk(empty.image()), begin=False)
            if said := difference(told, durable(exported(later))):
                tally.differs(f"{label}: import and replay: {said}")
        except Exception as bug:  # noqa: BLE001 (a fault of the broker under test)
            tally.fails(f"{label}: {bug!r}")
        tally.restarts += 6
        tally.checkpoints += 2

    def _compare(self, label: str, told: dict[str, list[str]], more: str, node: Node) -> None:
        # The content of a checkpoint is read back in rounds of the loop.
        node.run()
        if said := difference(told, durable(exported(node))):
            self.tally.differs(f"{label}: {said}")
        if (found := others(node)) != more:
            self.tally.differs(f"{label}: {more[:1_000]} became {found[:1_000]}")


def is_failure(request: Request, status: int) -> bool:
    """Return whether a status is neither success nor refusal.

    A health check that finds a problem answers 503.
    """
    if status == HTTPStatus.SERVICE_UNAVAILABLE and b"/health/checks/" in request.path:
        return False
    return not 200 <= status < 500


def is_reasoned(status: int, answer: bytes) -> bool:
    """Return whether a refusal gives a reason, as JSON."""
    try:
        said = json.loads(answer)
    except ValueError:
        return False
    return isinstance(said, dict) and len(str(said.get("reason", ""))) >= len("Not Found")


def _no_constant(text: str) -> None:
    raise AssertionError(f"JSON has no {text}")


def run_requests(directory: Path, tally: Tally, batch: Iterable[tuple[Request, bool]]) -> None:
    """Send all requests of a batch to one broker, each over TCP or not, then restart it."""

    async def run() -> None:
        hostile = HostileNode(directory, tally)
        async with hostile.serving():
            for request, over_tcp in batch:
                await hostile.ask(request, over_tcp)
                if request.method in ("DELETE", "PUT"):
                    prepare(hostile.node)
        hostile.survives("requests")

    asyncio.run(run())


def run_commands(directory: Path, tally: Tally, batch: Iterable[Case]) -> None:
    """Run all commands of a batch against one broker, then restart it."""

    async def run() -> None:
        hostile = HostileNode(directory, tally)
        async with hostile.serving():
            for arguments in batch:
                await hostile.order(arguments)
                prepare(hostile.node)
        hostile.survives("commands")

    asyncio.run(run())


def run_methods(directory: Path, tally: Tally, batch: Iterable[tuple[str, bytes]]) -> None:
    """Send all methods of a batch to one broker, then restart it."""
    hostile = HostileNode(directory, tally)
    for name, data in batch:
        hostile.send(name, data)
        prepare(hostile.node)
    hostile.survives("methods")


# -- HTTP ------------------------------------------------------------------------------------------


class Wire:
    """An HTTP connection that can send any bytes; it reconnects after a close."""

    def __init__(self, path: Path | None = None, port: int = 0) -> None:
        self._path = path
        self.port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    async def ask(
        self,
        method: str,
        path: bytes,
        body: bytes | None = None,
        authorization: bytes = AUTHORIZATION,
    ) -> tuple[int, bytes]:
        """Send a request; return status and body.  Raises: OSError, EOFError, ValueError."""
        if self._writer is None:
            if self._path is not None:
                opened = await asyncio.open_unix_connection(str(self._path))
            else:
                opened = await asyncio.open_connection("127.0.0.1", self.port)
            self._reader, self._writer = opened
        assert self._reader is not None
        data = b"%s %s HTTP/1.1\r\nHost: localhost\r\n" % (method.encode(), path)
        if authorization:
            data += b"Authorization: %s\r\n" % authorization
        if body is not None:
            data += b"Content-Length: %d\r\n" % len(body)
        self._writer.write(data + b"\r\n" + (body or b""))
        status, headers = await _head(self._reader)
        answer = await _body(self._reader, status, headers)
        if headers.get(b"connection", b"").lower() == b"close":
            self.close()
        return status, answer


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes]]:
    line = await reader.readline()
    if not line:
        raise EOFError("the connection was closed")
    status = int(line.split()[1])
    headers: dict[bytes, bytes] = {}
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    return status, headers


async def _body(reader: asyncio.StreamReader, status: int, headers: dict[bytes, bytes]) -> bytes:
    if status in (204, 304):
        return b""
    if headers.get(b"transfer-encoding") == b"chunked":
        found = b""
        while size := int((await reader.readline()).strip(), 16):
            found += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return found
    return await reader.readexactly(int(headers.get(b"content-length", b"0")))
