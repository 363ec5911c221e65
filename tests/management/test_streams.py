"""Streams over HTTP on TCP: what is served, to whom, and what slow and hostile clients cost."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from leveret.chunk import Chunk
from leveret.client.blocking import Channel, connect
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import unique
from support.http.http_api import Api
from support.http.http_streams import HttpUser, basic, bodies, http_port, split

#: A block of the stream goes to a file soon.
SETTINGS = {
    "journal_bytes_max": "256KiB",
    "login_failure_delay_ms": "1",
    "http_host": "0.0.0.0",  # noqa: S104  one test comes from another address
}
STREAM = {"x-queue-type": "stream"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("data"), settings=SETTINGS) as process:
        yield process


@pytest.fixture(scope="module")
def port(broker: BrokerProcess) -> int:
    return http_port(broker)


@pytest.fixture
def user(port: int) -> Iterator[HttpUser]:
    with HttpUser(port) as guest:
        yield guest


@pytest.fixture
def name(channel: Channel) -> str:
    """A new stream."""
    name = unique("s")
    channel.queue_declare(name, durable=True, arguments=STREAM)
    return name


def publish(channel: Channel, stream: str, messages: list[bytes]) -> None:
    """Publish and return when all is confirmed."""
    channel.confirm_select()
    for body in messages:
        channel.publish_nowait(body, "", stream)
    channel.wait_for_confirms()


def numbered(start: int, end: int, size: int = 0) -> list[bytes]:
    return [b"%08d" % number + b"." * size for number in range(start, end)]


# -- what is served --------------------------------------------------------------------------------


def test_a_stream_is_told_with_both_its_ends(user: HttpUser, channel: Channel, name: str) -> None:
    empty = {"name": name, "vhost": "/", "first_offset": 0, "next_offset": 0, "messages": 0}
    first = user.json(f"/api/streams/%2F/{name}")
    assert isinstance(first, dict)
    empty["stream_id"] = first["stream_id"]
    assert re.fullmatch("[0-9a-f]{16}", str(first["stream_id"]))
    assert first == empty | {"bytes": 0}
    publish(channel, name, numbered(0, 5))
    told = user.json(f"/api/streams/%2F/{name}")
    assert isinstance(told, dict)
    assert told | {"bytes": 0} == empty | {"next_offset": 5, "messages": 5, "bytes": 0}
    assert told["bytes"] >= 40
    listed = user.json("/api/streams/%2F")
    assert isinstance(listed, list)
    assert told in listed


def test_chunks_hold_what_was_published(user: HttpUser, channel: Channel, name: str) -> None:
    """Some lie in files by then, the rest is made a chunk for the answer."""
    messages = numbered(0, 3000, 500)
    publish(channel, name, messages)
    chunks, end = user.chunks(name, offset=0)
    assert end == 3000
    assert len(chunks) > 4
    assert bodies(chunks) == dict(enumerate(messages))
    assert [(c.first, c.last + 1 - c.count) for c in chunks] == [(c.first, c.first) for c in chunks]


def test_an_answer_begins_where_it_is_asked_to(user: HttpUser, channel: Channel, name: str) -> None:
    messages = numbered(0, 2000, 500)
    publish(channel, name, messages)
    chunks, _ = user.chunks(name, offset=1234)
    assert chunks[0].first <= 1234 <= chunks[0].last
    assert bodies(chunks, 1234) == dict(list(enumerate(messages))[1234:])
    chunks, end = user.chunks(name, offset=100, end=101)
    assert [c.first <= 100 <= c.last for c in chunks] == [True]
    assert end == chunks[0].last + 1
    assert user.chunks(name, offset=2000) == ([], 2000)
    assert user.chunks(name, offset=2**40) == ([], 2**40)


def test_a_reader_asks_on_from_where_an_answer_ended(
    user: HttpUser, channel: Channel, name: str
) -> None:
    messages = numbered(0, 3000, 500)
    publish(channel, name, messages)
    found: dict[int, bytes] = {}
    position = answers = 0
    while position < 3000:
        chunks, end = user.chunks(name, offset=position, max_bytes=1)
        assert len(chunks) == 1
        found |= bodies(chunks)
        position, answers = end, answers + 1
    assert answers > 4
    assert found == dict(enumerate(messages))


def test_large_messages_come_whole(user: HttpUser, channel: Channel, name: str) -> None:
    messages = [bytes([65 + number]) * 3_000_001 for number in range(4)]
    publish(channel, name, messages)
    chunks, _ = user.chunks(name, offset=0)
    assert bodies(chunks) == dict(enumerate(messages))


def test_an_offset_is_found_by_time(user: HttpUser, channel: Channel, name: str) -> None:
    publish(channel, name, numbered(0, 2000, 500))
    chunks, _ = user.chunks(name, offset=0)
    times = [int(c.timestamp_ms(n)) for c in chunks for n in range(int(c.count))]
    path = f"/api/streams/%2F/{name}/offset?timestamp="
    for wanted in (0, times[0], times[1000], times[-1]):
        expected = next(n for n, found in enumerate(times) if found >= wanted)
        assert user.json(f"{path}{wanted}") == {"offset": expected}
    assert user.json(f"{path}{times[-1] + 1}") == {"offset": 2000}
    path = f"/api/streams/%2F/{name}/offset?before="
    for wanted in (times[0] + 1, times[1000], times[-1]):
        expected = sum(found < wanted for found in times)
        assert user.json(f"{path}{wanted}") == {"offset": expected}
    assert user.json(f"{path}0") == {"offset": 0}
    assert user.json(f"{path}{times[-1] + 1}") == {"offset": 2000}


def test_a_message_that_is_waited_for_is_sent_when_it_is_there(
    port: int, channel: Channel, name: str
) -> None:
    publish(channel, name, [b"first"])
    with HttpUser(port) as waiter:
        found: list[dict[int, bytes]] = []

        def wait() -> None:
            found.append(bodies(waiter.chunks(name, offset=1, wait_ms=30_000)[0]))

        thread = threading.Thread(target=wait)
        thread.start()
        publish(channel, name, [b"second"])
        thread.join(ANSWER_SECONDS)
    assert found == [{1: b"second"}]


def test_a_wait_ends_when_its_time_is_up(user: HttpUser, name: str) -> None:
    assert user.chunks(name, offset=0, wait_ms=20) == ([], 0)


def test_a_wait_ends_when_the_stream_goes(port: int, channel: Channel, name: str) -> None:
    with HttpUser(port) as waiter:
        found: list[int] = []

        def wait() -> None:
            path = f"/api/streams/%2F/{name}/chunks?offset=0&wait_ms=30000"
            found.append(waiter.get(path)[0])

        thread = threading.Thread(target=wait)
        thread.start()
        channel.queue_delete(name)
        thread.join(ANSWER_SECONDS)
    assert found == [404]


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("offset=-1", "offset"),
        ("offset=first", "offset"),
        ("offset=", "offset"),
        ("offset=٣", "offset"),
        ("offset=99999999999999999999999", "offset"),
        ("wait_ms=60001", "wait_ms"),
        ("max_bytes=1.5", "max_bytes"),
        ("end=x", "end"),
    ],
)
def test_a_query_that_cannot_be_is_refused(
    user: HttpUser, name: str, query: str, what: str
) -> None:
    from urllib.parse import quote

    status, _, body = user.get(f"/api/streams/%2F/{name}/chunks?{quote(query, safe='=')}")
    assert status == 400
    assert f"'{what}'" in body.decode()


def test_a_queue_that_is_no_stream_is_refused(user: HttpUser, channel: Channel) -> None:
    queue = channel.queue_declare(unique("q")).queue
    status, _, body = user.get(f"/api/streams/%2F/{queue}/chunks")
    assert status == 400
    assert "is not a stream" in body.decode()


# -- to whom ---------------------------------------------------------------------------------------


@pytest.fixture
def api(broker: BrokerProcess) -> Iterator[Api]:
    with contextlib.closing(Api(broker.data_dir / "management.sock")) as api:
        yield api


@pytest.fixture
def reader(api: Api) -> str:
    """A user who may read the streams whose names begin with `s-`."""
    name = unique("u")
    api.change("PUT", f"/api/users/{name}", {"password": "secret", "tags": ""})
    rights = {"configure": "", "write": "", "read": "^s-"}
    api.change("PUT", f"/api/permissions/%2F/{name}", rights)
    return name


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Basic"},
        {"Authorization": "Basic ###"},
        {"Authorization": "Basic Z3Vlc3Q="},  # guest without a password
        {"Authorization": "Basic /w=="},
        {"Authorization": "Bearer abc"},
        {"Authorization": "Basic " + "A" * 5000},
        {"Authorization": "Basic Z3Vlc3Q6\xff3Vlc3Q="},
        basic("guest", "wrong"),
        basic("nobody", "guest"),
        basic("guest", ""),
    ],
)
def test_without_right_credentials_nobody_comes_in(
    user: HttpUser, name: str, headers: dict[str, str]
) -> None:
    for path in (f"/api/streams/%2F/{name}", "/api/streams/%2F", "/api/nothing"):
        status, answered, body = user.get(path, headers)
        assert status == 401
        assert answered["WWW-Authenticate"].startswith("Basic realm=")
        assert b"not_authorised" in body


def test_a_user_reads_what_he_may(port: int, reader: str, channel: Channel, name: str) -> None:
    other = unique("t")
    channel.queue_declare(other, durable=True, arguments=STREAM)
    publish(channel, name, [b"x"])
    with HttpUser(port, reader, "secret") as user:
        assert bodies(user.chunks(name, offset=0)[0]) == {0: b"x"}
        for path in ("", "/chunks", "/offset?timestamp=0"):
            status, _, body = user.get(f"/api/streams/%2F/{other}{path}")
            assert status == 403
            assert f"read access to queue '{other}'" in body.decode()
        # What he may not read he does not learn of either.
        assert user.get(f"/api/streams/%2F/{unique('t')}")[0] == 403
        assert user.get(f"/api/streams/%2F/{unique('s')}")[0] == 404
        listed = user.json("/api/streams/%2F")
        assert isinstance(listed, list)
        assert {one["name"] for one in listed} >= {name}
        assert other not in {one["name"] for one in listed}


def test_publishers_and_consumers_are_told_to_who_may_see_them(
    port: int, reader: str, channel: Channel, name: str
) -> None:
    other = unique("t")
    channel.queue_declare(other, durable=True, arguments=STREAM)
    with HttpUser(port, reader, "secret") as user:
        assert user.json(f"/api/publishers/%2F/{name}") == []
        assert user.json(f"/api/streams/%2F/{name}/consumers") == []
        assert user.get(f"/api/publishers/%2F/{other}")[0] == 403
        assert user.get(f"/api/streams/%2F/{other}/consumers")[0] == 403


def test_a_vhost_is_entered_with_permission_only(port: int, api: Api, reader: str) -> None:
    vhost = unique("v")
    api.change("PUT", f"/api/vhosts/{vhost}")
    with HttpUser(port, reader, "secret") as user:
        assert user.get(f"/api/streams/{vhost}")[0] == 403
        assert user.get(f"/api/streams/{unique('v')}")[0] == 403  # nobody learns what is there


def test_a_change_of_rights_counts_at_once(port: int, api: Api, reader: str, name: str) -> None:
    path = f"/api/streams/%2F/{name}"
    with HttpUser(port, reader, "secret") as user:
        assert user.get(path)[0] == 200
        rights = {"configure": "", "write": "", "read": ""}
        api.change("PUT", f"/api/permissions/%2F/{reader}", rights)
        assert user.get(path)[0] == 403
        api.change("PUT", f"/api/users/{reader}", {"password": "another", "tags": ""})
        assert user.get(path)[0] == 401


def own_address() -> str | None:
    """Return an address of this machine that is not of its loopback, if it has one."""
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family == socket.AF_INET and not one.address.startswith("127."):
                return one.address
    return None


def test_guest_comes_from_loopback_only(port: int, reader: str, name: str) -> None:
    host = own_address()
    if host is None:
        pytest.skip("the machine has no address but loopback")
    path = f"/api/streams/%2F/{name}"
    with HttpUser(port, host=host) as guest, HttpUser(port, reader, "secret", host) as user:
        assert guest.get(path)[0] == 401
        assert user.get(path)[0] == 200


def test_what_is_not_there_is_not_found(user: HttpUser) -> None:
    for path in ("/api/streams", "/api/nothing", "/ui/", "/api/queues/%2F/x"):
        assert user.get(path)[0] == 404


def test_who_operates_the_broker_needs_no_password(api: Api, channel: Channel, name: str) -> None:
    publish(channel, name, [b"x"])
    api.request("GET", f"/api/streams/%2F/{name}/chunks")
    response = api.getresponse()
    assert bodies(split(response.read())) == {0: b"x"}


# -- at what cost ----------------------------------------------------------------------------------


def test_a_connection_serves_many_requests(user: HttpUser, channel: Channel, name: str) -> None:
    publish(channel, name, [b"x"])
    assert user.json(f"/api/streams/%2F/{name}")
    sock = user.http.sock
    for _ in range(200):
        user.chunks(name, offset=0)
    assert user.http.sock is sock


def test_many_requests_cost_one_hash_of_the_password(
    broker: BrokerProcess, port: int, reader: str, channel: Channel, name: str
) -> None:
    """Each hash takes some 20 ms of a processor on purpose."""
    publish(channel, name, [b"x"])
    process = psutil.Process(broker.pid)
    with HttpUser(port, reader, "secret") as user:
        user.chunks(name, offset=0)
        before = sum(process.cpu_times()[:2])
        for _ in range(300):
            user.chunks(name, offset=0)
        assert sum(process.cpu_times()[:2]) - before < 300 * 0.01


def test_clients_that_do_not_read_cost_little_and_hinder_nobody(
    broker: BrokerProcess, port: int, channel: Channel, name: str
) -> None:
    publish(channel, name, numbered(0, 200, 100_000))
    process = psutil.Process(broker.pid)
    with HttpUser(port) as user:
        user.chunks(name, offset=0)  # loads what is loaded at the first request
        before = process.memory_info().rss
        path = f"GET /api/streams/%2F/{name}/chunks?offset=0 HTTP/1.1\r\nHost: localhost\r\n"
        token = basic("guest", "guest")["Authorization"]
        request = f"{path}Authorization: {token}\r\n\r\n".encode()
        with contextlib.ExitStack() as deaf:
            for _ in range(30):
                sock = deaf.enter_context(socket.create_connection(("127.0.0.1", port)))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.sendall(request)
                assert sock.recv(15) == b"HTTP/1.1 200 OK"
            assert len(bodies(user.chunks(name, offset=100)[0], 100)) == 100
            assert process.memory_info().rss - before < 30 * 2 * 1024 * 1024


def test_a_client_that_goes_leaves_nothing_behind(
    broker: BrokerProcess, port: int, channel: Channel, name: str
) -> None:
    publish(channel, name, numbered(0, 200, 100_000))
    process = psutil.Process(broker.pid)
    with HttpUser(port) as user:
        user.chunks(name, offset=0)
        before = process.num_fds()
        token = basic("guest", "guest")["Authorization"]
        for query in ("offset=0", "offset=200&wait_ms=60000"):
            path = f"GET /api/streams/%2F/{name}/chunks?{query} HTTP/1.1\r\nHost: localhost\r\n"
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", port)) as sock:
                    sock.sendall(f"{path}Authorization: {token}\r\n\r\n".encode())
                    if "wait" not in query:
                        sock.recv(1000)
        for _ in range(1000):
            # Each request gives the broker time to notice.
            user.json(f"/api/streams/%2F/{name}")
            if process.num_fds() <= before:
                break
        assert process.num_fds() <= before


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 100,
        b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X-Header: y\r\n" * 1000 + b"\r\n",
        b"POST /api/streams/%2F HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    ],
)
def test_garbage_is_answered_or_dropped(port: int, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=120) as sock:
        sock.sendall(garbage + b"\r\n\r\n")
        answer = sock.recv(1000)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 40", b"HTTP/1.0 40")), answer
    with HttpUser(port) as user:
        assert user.get("/api/streams/%2F")[0] == 200


@dataclass(frozen=True)
class Stored:
    """A chunk and where it lies."""

    path: Path
    position: int
    chunk: Chunk


def stored(data_dir: Path) -> list[Stored]:
    """Return the chunks of a data directory with one stream, in their order."""
    found = []
    for path in (data_dir / "segments").glob("*.seg"):
        position = 0
        for chunk in split(path.read_bytes()):
            found.append(Stored(path, position, chunk))
            position += int(chunk.size)
    return sorted(found, key=lambda one: one.chunk.first)


def harm(stored: Stored, at: int) -> None:
    """Change a byte of a chunk."""
    with stored.path.open("r+b") as file:
        file.seek(stored.position + at)
        byte = file.read(1)
        file.seek(stored.position + at)
        file.write(bytes([byte[0] ^ 1]))


def in_journal(data_dir: Path, body: bytes) -> bool:
    """Tell whether a journal of a data directory holds that."""
    found = b""
    for file in (data_dir / "journal").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += file.read_bytes()
    return body in found


def test_a_harmed_chunk_is_left_out_and_told(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, settings=SETTINGS) as broker:
        with connect(broker.uri) as connection:
            channel = connection.channel()
            channel.queue_declare("s", durable=True, arguments=STREAM)
            count = 0
            while count < 3000 or in_journal(tmp_path, b"%08d." % 1999):
                publish(channel, "s", numbered(count, count + 500, 500))
                count += 500
        broker.restart()
        whole = stored(tmp_path)
        assert whole[1].chunk.last < 1999
        assert len(whole) > 3
        harm(whole[1], 20)
        # No journal has the messages of the first chunks any more, but those of the last.
        harm(whole[0], int(whole[0].chunk.size) - 100)
        harm(whole[-1], int(whole[-1].chunk.size) - 100)
        with HttpUser(http_port(broker)) as user:
            chunks, end = user.chunks("s", offset=0)
        assert end == count
        lost = range(int(whole[1].chunk.first), int(whole[1].chunk.last) + 1)
        assert [c.first for c in chunks[:2]] == [whole[0].chunk.first, whole[2].chunk.first]
        # A message that is harmed is for the reader to notice.
        assert [len(chunk.damaged()) for chunk in chunks] == [1, *[0] * (len(chunks) - 1)]
        left = [int(c.sequence(n)) for c in chunks for n in range(int(c.count))]
        assert left == [n for n in range(count) if n not in lost]
        broker.expect_line("damage found and quarantined")


def test_a_broker_stops_while_clients_wait(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, settings=SETTINGS) as broker:
        with connect(broker.uri) as connection:
            connection.channel().queue_declare("s", durable=True, arguments=STREAM)
        with HttpUser(http_port(broker)) as user:
            user.json("/api/streams/%2F/s")
            user.http.request(
                "GET", "/api/streams/%2F/s/chunks?wait_ms=60000", headers=user.headers
            )
            assert broker.terminate() == 0


def test_a_broker_may_be_without(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path, flags=["--no-http"]) as broker,
        connect(broker.uri) as connection,
    ):
        assert "http_port" not in connection.server_properties


def test_a_port_that_is_taken_costs_only_the_listener(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = ["--http-port", str(taken.getsockname()[1])]
        with (
            BrokerProcess(tmp_path, flags=flags) as broker,
            connect(broker.uri) as connection,
        ):
            assert "http_port" not in connection.server_properties
            assert "AMQP continues without it" in broker.output


#: How long a thread of a test may take.
ANSWER_SECONDS = 120
