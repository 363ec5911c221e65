"""The bulk transport on a real broker, without a JVM: rows as over AMQP, and what ends a read."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from leveret.client import BasicProperties, Timestamp
from leveret.client.blocking import connect
from leveret.client.uri import parse_uri
from leveret.errors import AccessRefused, AccessRefusedHard, NotFound, PreconditionFailed
from leveret.spark.columns.schema import ROW
from leveret.spark.connection import http_link
from leveret.spark.connection.clock import clock_ms
from leveret.spark.connection.http_link import HttpLink, NoHttp, announced_address, told_address
from leveret.spark.options.read import parse_options
from leveret.spark.options.trust import TrustError
from leveret.spark.stream.planner import OffsetRange
from leveret.spark.stream.ranges import DataLossError, read_range
from leveret.spark.transport import Bounds, Interrupted, Piece, Transport
from leveret.spark.transports import auto, open_transport
from leveret.spark.transports.amqp import AmqpTransport
from leveret.spark.transports.auto import AutoTransport
from leveret.spark.transports.bulk import BulkTransport
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.node.pauses import StepPause
from support.spark.live_stream import LiveStream, Sent


def transport(stream: LiveStream, **options: str) -> Transport:
    given = stream.options | {"transport": "bulk"} | options
    return open_transport(parse_options(given), stream.name, ROW)


def rows(pieces: list[Piece]) -> list[dict[str, object]]:
    assert all(a.end == b.start for a, b in pairwise(pieces))
    return [row for piece in pieces for row in piece.batch.to_pylist()]


def bodies(pieces: list[Piece]) -> list[object]:
    return [row["body"] for row in rows(pieces)]


def test_the_ends_of_a_stream(stream: LiveStream) -> None:
    with transport(stream) as way:
        assert replace(way.bounds(), stream_id=None) == Bounds(0, 0)
        assert way.bounds().is_empty
        stream.publish_numbers(0, 400)
        assert (way.earliest(), way.latest()) == (0, 400)


def varied(count: int) -> Iterator[Sent]:
    """Yield messages that differ in all that a row shows."""
    for number in range(count):
        properties = BasicProperties(
            content_type="text/plain" if number % 3 else None,
            delivery_mode=1 + number % 2,
            headers={"n": number % 5, "when": Timestamp(number % 7), "t\udcff": "é"},
            message_id=str(number) if number % 2 else None,
            timestamp=1_700_000_000 + number,
        )
        yield Sent(os.urandom(number % 50), f"key.{number % 11}", properties)


def test_rows_are_those_that_come_over_amqp(stream: LiveStream) -> None:
    stream.publish(varied(3000))
    with transport(stream) as bulk, transport(stream, transport="amqp") as amqp:
        for start, end in ((0, 3000), (0, 1), (2999, 3000), (1234, 2345)):
            pieces = [*bulk.read(start, end)]
            assert (pieces[0].start, pieces[-1].end) == (start, end)
            assert rows(pieces) == rows([*amqp.read(start, end)])


def test_batches_are_bounded(stream: LiveStream) -> None:
    """But for a chunk's worth: a batch is made of whole ones."""
    stream.publish(Sent(b"") for _ in range(100))
    stream.publish(Sent(bytes(3_000_000)) for _ in range(8))
    with transport(stream) as way:
        pieces = [*way.read(0, 108)]
    assert [piece.batch.num_rows for piece in pieces] == [106, 2]


def test_a_read_of_what_is_not_there_ends(stream: LiveStream) -> None:
    made = stream.publish_numbers(0, 5)
    with transport(stream) as way:
        assert bodies([*way.read(2, 9)]) == made[2:]
        assert [*way.read(5, 9)] == []
        assert [*way.read(100, 101)] == []


def test_a_read_that_is_left_early_hinders_no_other(stream: LiveStream) -> None:
    stream.publish(Sent(bytes(100_000)) for _ in range(300))
    with transport(stream) as way:
        for _ in way.read(0, 300):
            break
        assert way.latest() == 300
        assert len(bodies([*way.read(290, 300)])) == 10


def test_an_offset_is_found_by_time(stream: LiveStream) -> None:
    stream.publish_numbers(0, 100)
    with transport(stream) as way:
        times = [row["timestamp"] for row in rows([*way.read(0, 100)])]
        moment = times[50].timestamp() * 1000  # type: ignore[attr-defined]
        assert way.offset_at(round(moment)) == times.index(times[50])
        assert way.offset_at(0) == 0
        assert way.offset_at(round(moment) + 3_600_000) == 100
        assert way.end_at(round(moment)) == times.index(times[50])
        assert way.end_at(0) == 0
        assert way.end_at(round(moment) + 3_600_000) == 100


def test_the_size_of_bodies_is_told_by_a_sample(stream: LiveStream) -> None:
    with transport(stream) as way:
        assert way.mean_bytes(0, 0) == 0
        stream.publish(Sent(bytes(10 + 2 * (n % 2))) for n in range(100))
        assert way.mean_bytes(0, 100) == 11


def test_what_is_no_stream_is_an_error(stream: LiveStream) -> None:
    absent = LiveStream(stream.uri, "nobody-made-this", "")
    with transport(absent) as way:
        with pytest.raises(NotFound, match="no stream 'nobody-made-this' in vhost '/'"):
            way.latest()
        with pytest.raises(NotFound):
            [*way.read(0, 1)]
    queue = f"{stream.name}-queue"
    with connect(stream.uri) as connection, connection.channel() as channel:
        channel.queue_declare(queue)
        way = transport(LiveStream(stream.uri, queue, ""))
        with way, pytest.raises(PreconditionFailed, match="is not a stream"):
            way.earliest()
        channel.queue_delete(queue)


def test_what_is_known_of_a_login_without_tls_serves_none_with_it(
    stream: LiveStream, tmp_path: Path
) -> None:
    """An address that was learned without TLS would get the password, and no authority be read."""
    with transport(stream) as way:
        way.latest()
    secure = stream.uri.replace("amqp://", "amqps://")
    missing = {"uri": secure, "caFile": str(tmp_path / "none.pem")}
    for kind in ("bulk", "auto"):
        fault = r"option 'caFile': .*none\.pem"
        way = transport(stream, transport=kind, **missing)
        with way, pytest.raises(TrustError, match=fault):
            way.latest()


def test_a_refused_login_is_no_interruption(stream: LiveStream) -> None:
    """Over AMQP, where the port is asked for, and over HTTP where it is known."""
    wrong = LiveStream(stream.uri.replace("guest:guest@", "guest:wrong@"), stream.name, "")
    http_link.forget_address(parse_options(stream.options).parameters())
    with transport(wrong) as way, pytest.raises(AccessRefusedHard):
        way.latest()
    with transport(stream) as right:
        right.latest()
    address = announced_address(parse_options(stream.options).parameters())
    with transport(wrong, httpUri=address) as way, pytest.raises(AccessRefused, match="wrong"):
        way.latest()


def test_nobody_who_answers_is_an_interruption(stream: LiveStream) -> None:
    with transport(LiveStream("amqp://127.0.0.1:1", "s", "")) as way, pytest.raises(Interrupted):
        way.latest()
    with transport(stream, httpUri="http://127.0.0.1:1") as way, pytest.raises(Interrupted):
        way.latest()


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Answer whoever comes with some bytes, as something that is no Leveret may."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                with sock:
                    sock.recv(10_000)
                    sock.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\nServer: Leveret\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 2\r\n\r\n{}", NoHttp),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", NoHttp),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Interrupted),
        (b"", Interrupted),
        (HEAD + b"Content-Length: 100\r\n\r\nshort", Interrupted),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n100\r\nshort", Interrupted),
        (HEAD + b"Leveret-End-Offset: 9\r\nContent-Length: 200\r\n\r\n" + b"x" * 200, Interrupted),
    ],
)
def test_what_answers_otherwise_is_told(
    stream: LiveStream, answer: bytes, error: type[Exception]
) -> None:
    with answering(answer) as port:
        way = transport(stream, httpUri=f"http://127.0.0.1:{port}")
        with way, pytest.raises(error):
            [*way.read(0, 9)]


def test_the_clock_of_a_broker_is_asked_over_http(stream: LiveStream) -> None:
    date = b"Date: Sat, 01 Jan 2000 00:00:00 GMT\r\nContent-Length: 2\r\n\r\n{}"
    with answering(HEAD + date) as port:
        given = stream.options | {"httpUri": f"http://127.0.0.1:{port}"}
        assert clock_ms(parse_options(given)) == 946_684_800_000
    link = HttpLink(parse_options(stream.options), stream.name)
    with link.ask("", {}) as answer:
        assert answer.getheader("Date")
    link.close()


def test_a_read_goes_on_after_a_crash_of_the_broker(tmp_path: Path, name: str) -> None:
    """Also when it listens for HTTP on another port then."""
    need_own_broker()
    with BrokerProcess(tmp_path / "broker") as broker:
        broker.flags = ["--port", str(broker.port)]
        live = LiveStream(broker.uri, name, f"{name}-exchange")
        live.declare()
        made = live.publish_numbers(0, 2000)
        options = parse_options(live.options | {"transport": "bulk", "numRetries": "20"})

        def restart(_: float) -> None:
            if not broker.is_running():
                broker.start()

        pause = StepPause(restart)
        with open_transport(options, name, ROW) as way:
            found = []
            for start in (0, 1000):
                whole = OffsetRange(name, start, start + 1000)
                for batch in read_range(way, options, whole, pause):
                    found += batch.column("body").to_pylist()
                broker.kill()
        assert found == made
        assert pause.waits


def test_harmed_messages_are_missing(tmp_path: Path, name: str) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path / "broker") as broker:
        live = LiveStream(broker.uri, name, f"{name}-exchange")
        live.declare()
        live.publish(Sent(b"<%06d>" % number + bytes(200)) for number in range(5000))
        segments = (tmp_path / "broker" / "segments").glob("*.seg")
        path = next(one for one in segments if b"<001000>" in one.read_bytes())
        data = path.read_bytes()
        at = data.index(b"<001000>")
        path.write_bytes(data[:at] + b"[" + data[at + 1 :])
        # As checkpoints do one day: the broker would read the message from there.
        for journal in (tmp_path / "broker" / "journal").iterdir():
            journal.unlink()
        options = parse_options(live.options | {"transport": "bulk"})
        whole = OffsetRange(name, 0, 5000)
        with open_transport(options, name, ROW) as way:
            pieces = [*way.read(0, 5000)]
            found = [row["offset"] for p in pieces for row in p.batch.to_pylist()]
            assert found == [n for n in range(5000) if n != 1000]
            with pytest.raises(DataLossError, match="messages 1000 to 1000 are missing"):
                [*read_range(way, options, whole)]


# -- the choice ------------------------------------------------------------------------------------


def chosen(way: Transport) -> type[Transport]:
    """Return what an automatic transport uses once it was used."""
    assert isinstance(way, AutoTransport)
    way.latest()
    return type(way.chosen())


def test_leveret_is_read_in_bulk(stream: LiveStream) -> None:
    made = stream.publish_numbers(0, 10)
    with transport(stream, transport="auto") as way:
        assert bodies([*way.read(0, 10)]) == made
        assert chosen(way) is BulkTransport


def test_a_broker_without_http_is_read_over_amqp(tmp_path: Path, name: str) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path / "broker", flags=["--no-http"]) as broker:
        live = LiveStream(broker.uri, name, f"{name}-exchange")
        live.declare()
        made = live.publish_numbers(0, 10)
        with transport(live, transport="auto") as way:
            assert bodies([*way.read(0, 10)]) == made
            assert chosen(way) is AmqpTransport
        with transport(live) as way, pytest.raises(NoHttp, match="reports no HTTP port"):
            way.latest()


def test_a_broker_that_is_restarted_with_http_is_found(tmp_path: Path) -> None:
    """No HTTP is not for the life of the process: the driver's is long."""
    need_own_broker()
    clock = iter((0.0, 0.0, http_link.ABSENT_SECONDS - 1, http_link.ABSENT_SECONDS))
    addresses = http_link.HttpAddresses(lambda: next(clock))
    with BrokerProcess(tmp_path / "broker", flags=["--no-http"]) as broker:
        parameters = parse_uri(broker.uri)
        with pytest.raises(NoHttp):
            addresses.of(parameters)
        broker.kill()
        broker.flags = ["--port", str(broker.port)]
        broker.start()
        with pytest.raises(NoHttp):
            addresses.of(parameters)
        assert addresses.of(parameters).startswith("http://")


def test_a_listener_that_does_not_answer_is_not_asked_again_for_a_while(
    stream: LiveStream,
) -> None:
    silence: auto.Silence = {}
    now = [0.0]
    given = stream.options | {"transport": "auto"}
    with answering(b"") as port:
        nobody = parse_options(given | {"httpUri": f"http://127.0.0.1:{port}"})
        made = stream.publish_numbers(0, 10)
        with AutoTransport(nobody, stream.name, ROW, silence, lambda: now[0]) as way:
            assert bodies([*way.read(0, 10)]) == made
            assert chosen(way) is AmqpTransport
        asked_again = AutoTransport(nobody, stream.name, ROW, silence, lambda: now[0])
        with asked_again:
            assert chosen(asked_again) is AmqpTransport
            first = asked_again.chosen()
            now[0] = auto.SILENT_SECONDS
            assert asked_again.chosen() is not first
    with AutoTransport(parse_options(given), stream.name, ROW, silence, lambda: now[0]) as way:
        assert chosen(way) is BulkTransport


def test_nothing_is_chosen_while_the_broker_is_away(tmp_path: Path, name: str) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path / "broker") as broker:
        broker.flags = ["--port", str(broker.port)]
        live = LiveStream(broker.uri, name, f"{name}-exchange")
        live.declare()
        made = live.publish_numbers(0, 10)
        broker.kill()
        with transport(live, transport="auto") as way:
            with pytest.raises(Interrupted):
                way.bounds()
            broker.start()
            assert bodies([*way.read(0, 10)]) == made
            assert chosen(way) is BulkTransport


@pytest.mark.parametrize(
    ("uri", "said", "address"),
    [
        ("amqp://h", {"http_port": 1, "https_port": 2}, "http://h:1"),
        ("amqp://h", {"https_port": 2}, "https://h:2"),
        ("amqps://h", {"http_port": 1, "https_port": 2}, "https://h:2"),
        ("amqps://[::1]", {"https_port": 2}, "https://[::1]:2"),
        # A password that came through TLS goes nowhere without it.
        ("amqps://h", {"http_port": 1}, None),
        ("amqp://h", {"http_port": "1"}, None),
    ],
)
def test_the_address_is_the_one_that_the_broker_tells(
    uri: str, said: dict[str, object], address: str | None
) -> None:
    assert told_address(parse_uri(uri), said) == address
