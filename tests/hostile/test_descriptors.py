"""Connections never take the descriptors that the store needs, nor all that there are."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.cli import exits
from leveret.cli.ping import ping
from leveret.limits import STORE_FILES_MAX
from leveret.session.admission import FULL, ROOM, WAIT, Admission, Slot, network_of
from leveret.store.disk import RealDisk, StorageFailure, StoreFile
from leveret.store.disks.wrapping import WrappedFile
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.brokers.secure import port_of
from support.http.http_api import Api
from support.http.http_streams import HttpUser, basic
from support.node.core import Node
from support.wire import raw
from support.wire.raw_codec import PROTOCOL_HEADER, method, publish

#: Descriptors of the broker, and connections that strangers hold beyond them.
DESCRIPTORS = 100
BEYOND = 60

#: Where they are.
ELSEWHERE = "127.0.0.2"

MESSAGES = 70
BODY = bytes(262_144)

#: Files of the journal and checkpoints come often.
SETTINGS = {"journal_file_bytes": "2MiB", "journal_bytes_max": "4MiB", "queue_window_bytes": "1MiB"}


def limited(directory: Path, descriptors: int, **settings: str) -> BrokerProcess:
    """Return a broker with so many descriptors, the hard limit included."""
    wrapper = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
    return BrokerProcess(directory / "data", settings=SETTINGS | settings, wrapper=wrapper)


class Strangers:
    """Holds connections, and opens one anew for each that the broker ends."""

    def __init__(self, port: int, said: bytes, count: int) -> None:
        self.port = port
        self.said = said
        self.count = count
        self.opened = 0
        self.all_there = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _hold(self) -> None:
        held: list[socket.socket] = []
        while not self._over.is_set():
            held = [sock for sock in held if self._lives(sock)]
            while len(held) < self.count:
                sock = socket.create_connection(
                    ("127.0.0.1", self.port), source_address=(ELSEWHERE, 0)
                )
                sock.setblocking(False)
                held.append(sock)
                self.opened += 1
                with contextlib.suppress(OSError):
                    sock.sendall(self.said)
            if self.opened >= 3 * self.count:
                self.all_there.set()
            self._over.wait(0.01)
        for sock in held:
            sock.close()

    def _lives(self, sock: socket.socket) -> bool:
        try:
            ended = sock.recv(65_536) == b""
        except BlockingIOError:
            return True
        except OSError:
            ended = True
        if ended:
            sock.close()
        return not ended


def publish_all(connection: raw.Connection) -> None:
    """Publish more than the queue's memory holds, and hear each confirm."""
    connection.open_channel(1)
    connection.declare(1, "q", durable=True)
    connection.call(1, "confirm.select")
    for _ in range(MESSAGES):
        connection.send(publish(1, "", "q", BODY, delivery_mode=2))
    while connection.expect(1, "basic.ack").delivery_tag < MESSAGES:
        pass


HTTP_HEAD = b"GET /api/streams/%2F HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("over_http", "said"),
    [(False, b""), (False, PROTOCOL_HEADER), (True, b""), (True, HTTP_HEAD)],
    ids=["amqp-silent", "amqp-begun", "http-silent", "http-begun"],
)
def test_strangers_take_no_descriptor_that_the_store_needs(
    tmp_path: Path, over_http: bool, said: bytes
) -> None:
    """All confirms come, a new client logs in, and the operator can look."""
    with limited(tmp_path, DESCRIPTORS) as broker:
        http = int(broker.expect_line("listening on http://").rsplit(":", 1)[1])
        port = http if over_http else broker.port
        with Strangers(port, said, DESCRIPTORS + BEYOND) as strangers:
            assert strangers.all_there.wait(raw.SECONDS_MAX)
            with raw.connect(broker.uri) as connection:
                publish_all(connection)
            api = Api(broker.data_dir / "management.sock")
            _, nodes, _ = api.answer("/api/nodes")
            api.close()
            assert isinstance(nodes, list)
            node = nodes[0]
            assert node["fd_total"] == DESCRIPTORS
            assert node["fd_used"] <= DESCRIPTORS
            assert node["sockets_used"] <= node["sockets_total"]
            assert node["connections_expelled"] > 0
        assert broker.is_running()
        assert "Too many open files" not in broker.output
        broker.crash()
        with raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            assert connection.declare(1, "q", durable=True).message_count == MESSAGES
        assert broker.terminate() == 0


@contextlib.contextmanager
def all_taken(broker: BrokerProcess) -> Iterator[list[raw.Connection]]:
    """Provide connections of clients that have logged in, as many as the broker takes."""
    held: list[raw.Connection] = []
    try:
        with contextlib.suppress(raw.Closed, ConnectionError):
            while True:
                held.append(raw.connect(broker.uri))
        yield held
    finally:
        for connection in held:
            connection.socket.close()


def test_clients_that_take_all_places_leave_the_operators_theirs(tmp_path: Path) -> None:
    """HTTP, metrics, health checks and the Unix socket answer, and the store has its files."""
    with limited(tmp_path, DESCRIPTORS) as broker, all_taken(broker) as held:
        api = Api(broker.data_dir / "management.sock")
        overview = "/api/overview"
        assert api.answer("/api/nodes")[0] == 200
        status, room, _ = api.answer("/api/health/checks/below-node-connection-limit")
        assert isinstance(room, dict)
        assert (status, room["current"], room["limit"]) == (503, len(held), len(held))
        assert ping(raw.SECONDS_MAX, data_dir=broker.data_dir) == exits.OK
        metrics = re.search(r"//([^/]+)/metrics", broker.expect_line("listening for Prometheus"))
        assert metrics is not None
        for place in (metrics[1], f"127.0.0.1:{port_of(broker, 'http')}"):
            with closing(http.client.HTTPConnection(place, timeout=raw.SECONDS_MAX)) as asking:
                asking.request("GET", "/metrics", headers=basic("guest", "guest"))
                assert asking.getresponse().read()
        with HttpUser(port_of(broker, "http")) as user:
            for path in (overview, "/api/health/checks/alarms", "/api/aliveness-test/%2F"):
                assert user.get(path)[0] == 200
        publish_all(held[0])
        # A user with idle connections on the Unix socket does not keep others out.
        idle = [Api(broker.data_dir / "management.sock") for _ in range(DESCRIPTORS)]
        for one in idle:
            assert one.answer(overview)[0] == 200
        assert idle[-1].change("DELETE", "/api/connections/username/guest") == 204
        for one in (*idle, api):
            one.close()
        assert broker.terminate() == 0
        assert "Too many open files" not in broker.output


def test_a_system_that_gives_no_descriptor_ends_nothing(tmp_path: Path) -> None:
    """The limit falls below what is in use: accepting waits, the store takes its spare ones."""
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        with raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            connection.declare(1, "q", durable=True)
            connection.call(1, "confirm.select")
            # None above those that are open.
            highest = highest_open(broker.pid)
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
            waiting = [raw.dial(broker.uri) for _ in range(64)]
            broker.expect_line("cannot accept a connection")
            for _ in range(MESSAGES):
                connection.send(publish(1, "", "q", BODY, delivery_mode=2))
            while connection.expect(1, "basic.ack").delivery_tag < MESSAGES:
                pass
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
            for one in waiting:
                one.socket.close()
            raw.connect(broker.uri).close()
        assert broker.terminate() == 0


def test_a_limit_that_is_too_small_is_told_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(BrokerProcessError) as refused, limited(tmp_path, 64):
        pass
    said = str(refused.value)
    assert "the limit on open files is 64, which leaves no room for connections" in said
    assert "ulimit -n" in said
    with limited(tmp_path, DESCRIPTORS) as broker:
        line = broker.expect_line(f"the limit on open files is {DESCRIPTORS}: room for")
        assert "LimitNOFILE" in line


def test_the_soft_limit_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    wrapper = ["sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh"]
    with BrokerProcess(tmp_path / "data", wrapper=wrapper) as broker:
        soft, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        assert soft > 64
        assert soft == min(hard, soft)


# -- the store's own ------------------------------------------------------------------------------


def highest_open(pid: int) -> int:
    """Return the highest descriptor that a process has open."""
    return max(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir())


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """Let this process open no descriptor above those that are open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    soft = highest_open(os.getpid()) + 8
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in held:
            os.close(descriptor)


def test_spare_descriptors_make_room_for_files(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    disk.make_dir("d")
    assert disk.spare(3)
    with none_left():
        file = disk.open("d/one", create=True)
        disk.fsync_dir("d")
        assert disk.list("d") == ["one"]
        other = disk.open("d/two", create=True)
        # The third spare one; no other is left.
        third = disk.open("d/three", create=True)
        with pytest.raises(StorageFailure, match="Too many open files"):
            disk.open("d/four", create=True)
        assert not disk.spare(3)
        for one in (file, other, third):
            one.close()
        assert disk.spare(3)
    disk.close()


class CountedFile(WrappedFile):
    """A file that counts as open until it is closed."""

    def __init__(self, disk: CountingDisk, file: StoreFile) -> None:
        super().__init__(file)
        self._disk = disk
        self._open = True

    def close(self) -> None:
        if self._open:
            self._open = False
            self._disk.now -= 1
        super().close()


class CountingDisk(RealDisk):
    """A disk that counts the files that are open at once."""

    def __init__(self, directory: str) -> None:
        self.now = self.most = 0
        super().__init__(directory)

    def open(self, path: str, *, create: bool = False) -> StoreFile:
        file = CountedFile(self, super().open(path, create=create))
        self.now += 1
        self.most = max(self.most, self.now)
        return file


def test_the_store_opens_no_more_files_than_are_kept_for_it(tmp_path: Path) -> None:
    """Each of its four threads holds one more for a moment: what it reads, or a directory."""
    disk = CountingDisk(str(tmp_path))
    node = Node(disk, window_bytes=0)
    after_start = disk.now
    disk.most = 0
    peer = node.connect()
    peer.call(1, "queue.declare", queue="q", durable=True)
    peer.call(1, "queue.declare", queue="t")
    stream = {"x-queue-type": "stream"}
    peer.call(1, "queue.declare", queue="s", durable=True, arguments=stream)
    for number in range(300):
        for queue in ("q", "t", "s"):
            peer.send(publish(1, "", queue, b"%d" % number * 100, delivery_mode=2))
        if number % 50 == 49:
            node.write_spilled()
            node.take_checkpoint()
    for _ in range(100):
        peer.send(method(1, "basic.get", queue="q", no_ack=True))
        peer.take()
    # The journal's file, one for each kind of chunks, a snapshot and its segment, a chunk read.
    assert disk.most >= 4
    assert max(disk.most, after_start) + 4 <= STORE_FILES_MAX


# -- who goes -------------------------------------------------------------------------------------


#: All who had to go for another one.
EXPELLED: list[Visit] = []


class Visit:
    """One who comes in, with all that happens to him."""

    def __init__(self, admission: Admission, network: str) -> None:
        self.gone = False
        self.known = False
        self.idle = False
        self.asking = False
        self.admission = admission
        self.slot = Slot(network, self._expelled, lambda: self.known, lambda: self.asking)

    def _expelled(self) -> None:
        assert not self.known or self.idle
        self.gone = True
        EXPELLED.append(self)


def let_in(admission: Admission, network: str) -> Visit | None:
    """Let one in as the acceptor does; None where he had to go."""
    visit = Visit(admission, network)
    while (verdict := admission.request(network)) == WAIT:
        for one in [one for one in EXPELLED if one.slot in one.admission.slots]:
            one.admission.leave(one.slot)
    if verdict == FULL:
        return None
    assert verdict == ROOM
    admission.enter(visit.slot)
    return visit


def visited(admission: Admission, network: str) -> Visit:
    """Let one in for whom there is a place."""
    visit = let_in(admission, network)
    assert visit is not None
    return visit


def test_the_oldest_stranger_goes_first() -> None:
    admission = Admission(3)
    first, second, third = [visited(admission, str(number)) for number in range(3)]
    first.known = True
    assert let_in(admission, "new") is not None
    assert (first.gone, second.gone, third.gone) == (False, True, False)
    assert len(admission.slots) == 3
    assert admission.expelled == 1


def test_who_is_just_logging_in_is_passed_over() -> None:
    """Also in a flood from his own address, as long as others do nothing."""
    admission = Admission(4)
    first = visited(admission, "a")
    first.asking = True
    for _ in range(100):
        visited(admission, "a")
    assert not first.gone
    # Where all are logging in, the oldest goes.
    all_asking = Admission(2)
    two = [visited(all_asking, "a") for _ in range(2)]
    for one in two:
        one.asking = True
    visited(all_asking, "a")
    assert [one.gone for one in two] == [True, False]


def test_where_all_are_known_the_newcomer_goes() -> None:
    admission = Admission(2)
    for _ in range(2):
        visited(admission, "a").known = True
    assert let_in(admission, "a") is None
    assert (admission.refused, admission.expelled) == (1, 0)


def test_a_flood_from_one_address_pays_for_itself() -> None:
    admission = Admission(10)
    quiet = [visited(admission, "quiet") for _ in range(4)]
    for _ in range(1000):
        visited(admission, "flood")
    assert not any(visit.gone for visit in quiet)
    assert len(admission.slots) == 10


def test_one_peer_has_a_network_of_ipv6() -> None:
    assert network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::9") == "2001:db8:1:2::"
    assert network_of("2001:db8:1:3::9") != network_of("2001:db8:1:2::9")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("fe80::1%eth0") == "fe80::"
    assert network_of("unknown") == "unknown"
    assert network_of("no:address") == "no:address"


STEPS = st.lists(
    st.tuples(st.sampled_from(["come", "know", "leave", "work", "rest"]), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_places_are_never_more_than_there_are(steps: list[tuple[str, int]]) -> None:
    """And nobody goes who has logged in and works, whatever comes."""
    parts = [Admission(3), Admission(4)]
    there: list[tuple[Visit, Admission]] = []
    acts: dict[str, Callable[[Admission, Slot], None]] = {
        "leave": Admission.leave, "work": Admission.busy, "rest": Admission.idle,
    }  # fmt: skip
    for what, number in steps:
        there = [(visit, part) for visit, part in there if not visit.gone]
        if what == "come":
            part = parts[number % 2]
            visit = let_in(part, str(number // 4))
            if visit is not None:
                there.append((visit, part))
        elif there:
            visit, part = there[number % len(there)]
            if what == "know":
                visit.known = True
                part.authenticated(visit.slot)
            else:
                acts[what](part, visit.slot)
                visit.idle = visit.known and what == "rest"
                if what == "leave":
                    there.remove((visit, part))
        assert [len(part.slots) <= int(part.limit) for part in parts] == [True, True]
