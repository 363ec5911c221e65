"""Real sessions with a few bytes changed, a million of them, on the sockets of a broker (R12).

A session is what a client sends from its first byte to its close, all at once: handshake, declares,
publishes, gets, consumes, acks, transactions; or a request of HTTP.  Each is mutated at one place
or several: bits, bytes, lengths, numbers at their edges, frames left out, doubled, moved, put on
other channels, or spliced with another session.  When no answer comes any more the client closes
its half, so the broker must end each of them.

Meanwhile a neighbour publishes and gets, and its waits are measured.  The broker must live, answer
well-formed frames, never with 541 (an internal error), end each session in time, and hold no more
memory than when it was warm.  What a mutation leaves in the vhost is deleted now and then.

Mutations are guided by nothing but the seed: not by the coverage of the code.  Damaged files are
`flips`, `tails` and `missing`.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psutil

from chaos.board import Row
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.http.http_api import Api
from support.wire import raw
from support.wire.raw_codec import NAMES, method
from support.wire.raw_stream import Inbox

NAME: Final = "mutations"
RUNS: Final = 1_000_000

WORKERS: Final = 12
#: One in so many is a request of HTTP.
HTTP_EACH: Final = 8

#: Sessions after which the broker is warm, and those after which all is deleted.
WARM: Final = 2_000
SWEEP: Final = 5_000
SAID_EACH: Final = 20_000

RSS_GROWTH_MAX: Final = 64 << 20
#: What the neighbour may wait: one in a hundred, and ever (on a quiet machine).
P99_SECONDS_MAX: Final = 0.100
HANG_SECONDS_MAX: Final = 1.0
#: How long an answer is awaited where the broker may be waiting, too.
ANSWER_SECONDS: Final = 0.25
#: A session that is not over by then is one that the broker did not end.
END_SECONDS_MAX: Final = 20.0

#: What a mutated session may fill, before publishers are blocked.
SETTINGS: Final = {
    "login_failure_delay_ms": "0", "message_bytes_max": "1048576", "journal_bytes_max": "8388608",
    "memory_bytes_max": "512MiB",
}  # fmt: skip

INTERNAL_ERROR: Final = 541
EDGES: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 1 << 63)

#: The broker's last frame where all went well.
CLOSE_OK: Final = method(0, "connection.close-ok")

#: Frames of a session.
Frames = list[bytes]


@dataclass
class Score:
    """What came of all sessions; shared under its lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    sessions: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        """Note what is wrong."""
        with self.lock:
            self.problems.append(text)


def opening() -> Frames:
    """What a client sends until its channels are open, without waiting for an answer."""
    client = {"product": "mutations", "capabilities": raw.CAPABILITIES}
    return [
        raw.PROTOCOL_HEADER,
        method(
            0, "connection.start-ok", client_properties=client, mechanism="PLAIN",
            response=b"\0guest\0guest", locale="en_US",
        ),
        method(0, "connection.tune-ok", channel_max=100, frame_max=131_072, heartbeat=60),
        method(0, "connection.open", vhost="/"),
        method(1, "channel.open"),
        method(2, "channel.open"),
    ]  # fmt: skip


def messages(exchange: str, key: str) -> Frames:
    """Some publishes, frame by frame."""
    headers = {"a": 1, "CC": ["q"], "deep": {"er": [1, "x", None, True, {"t": 1 << 40}]}}
    properties = raw.properties(
        headers=headers, delivery_mode=2, priority=3, correlation_id="c", expiration="60000",
        message_id="m", timestamp=1_700_000_000, type="t", app_id="a",
    )  # fmt: skip
    return [
        method(1, "basic.publish", exchange=exchange, routing_key=key, mandatory=True),
        raw.header(1, 30, properties),
        raw.frame(raw.BODY, 1, b"x" * 10),
        raw.frame(raw.BODY, 1, b"x" * 20),
    ]


def sessions() -> list[Frames]:
    """Whole sessions, each of valid frames."""
    limits = {"x-max-length": 10, "x-message-ttl": 60_000, "x-dead-letter-exchange": "amq.fanout"}
    queue = {"queue": "q", "durable": True, "arguments": limits}
    bound = {"queue": "q", "exchange": "t", "routing_key": "a.*.#", "arguments": {"x": [1]}}
    declares = [
        method(1, "queue.declare", **queue),
        method(1, "exchange.declare", exchange="t", type="topic", durable=True),
        method(1, "queue.bind", **bound),
    ]
    takes = [
        method(1, "basic.qos", prefetch_count=3),
        method(2, "basic.consume", queue="q", consumer_tag="c", arguments={"x-priority": 1}),
        method(2, "basic.get", queue="q"),
        method(2, "basic.ack", delivery_tag=1),
        method(2, "basic.nack", delivery_tag=0, multiple=True, requeue=True),
        method(2, "basic.recover", requeue=True),
        method(2, "basic.cancel", consumer_tag="c"),
    ]
    stream = {"queue": "s", "durable": True, "arguments": {"x-queue-type": "stream"}}
    offset = {"x-stream-offset": "first", "x-stream-filter": ["a", "b"]}
    reading = [
        method(1, "queue.declare", **stream),
        *messages("", "s"),
        method(2, "basic.qos", prefetch_count=10),
        method(2, "basic.consume", queue="s", consumer_tag="r", arguments=offset),
        method(2, "basic.ack", delivery_tag=0, multiple=True),
    ]
    ends = [
        method(1, "queue.unbind", queue="q", exchange="t", routing_key="a.*.#"),
        method(1, "exchange.bind", destination="t", source="amq.headers", arguments={"a": 1}),
        method(1, "queue.purge", queue="q"),
        method(1, "exchange.delete", exchange="t"),
        method(1, "queue.delete", queue="q"),
        method(1, "channel.close", code=200, text="bye"),
    ]
    closing = [method(0, "connection.close", code=200, text="bye")]
    bodies = [
        [*declares, method(1, "confirm.select"), *messages("t", "a.b"), *messages("", "q"), *takes],
        [*declares, method(1, "tx.select"), *messages("t", "a.b"), *takes, method(1, "tx.commit")],
        [*declares, *messages("amq.fanout", "q"), *takes, *ends],
        reading,
    ]
    return [[*opening(), *body, *closing] for body in bodies]


def requests() -> list[bytes]:
    """Requests of HTTP."""
    head = b"Host: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
    return [
        b"GET /api/streams/%2F HTTP/1.1\r\n" + head + b"\r\n",
        b"GET /api/streams/%2F/s HTTP/1.1\r\n" + head + b"Connection: close\r\n\r\n",
        b"GET /api/streams/%2F/s/chunks?offset=first&max_bytes=1000&wait_ms=0 HTTP/1.1\r\n"
        + head
        + b"Accept-Encoding: gzip\r\n\r\n",
        b"DELETE /api/sinks/%2F/x?destination=q HTTP/1.1\r\n"
        + head
        + b'Content-Type: application/json\r\nContent-Length: 13\r\n\r\n{"a": [1, 2]}',
        b"POST /api/streams/%2F HTTP/1.1\r\n"
        + head
        + b"Transfer-Encoding: chunked\r\n\r\n3\r\n{} \r\n0\r\n\r\n",
    ]


def mutated(chance: random.Random, whole: list[Frames]) -> bytes:
    """Return a session with one change, or a few."""
    frames = list(chance.choice(whole))
    for _ in range(1 + (chance.randrange(4) == 0)):
        at = chance.randrange(len(frames))
        how = chance.randrange(10)
        if how == 0:
            del frames[at]
        elif how == 1:
            frames.insert(at, frames[at])
        elif how == 2:
            frames.insert(chance.randrange(len(frames)), frames.pop(at))
        elif how == 3:
            frames[at:] = chance.choice(whole)[chance.randrange(4) :]
        elif how == 4 and len(frames[at]) > 8 and at > 0:
            channel = chance.choice((0, 1, 2, 3, 99, 65_535))
            frames[at] = frames[at][:1] + channel.to_bytes(2) + frames[at][3:]
        elif how == 5 and at > 0:
            classes = struct.pack(">HH", *chance.choice(list(NAMES)))
            frames[at] = frames[at][:7] + classes + frames[at][11:]
        elif frames[at]:
            # A bite before may have taken all of it.
            frames[at] = bitten(chance, frames[at])
        if not frames:
            frames = [raw.PROTOCOL_HEADER]
    return b"".join(frames)


def bitten(chance: random.Random, data: bytes) -> bytes:
    """Return bytes with a bit, a byte, a number or a piece of them changed."""
    changed = bytearray(data)
    at = chance.randrange(len(changed))
    how = chance.randrange(6)
    if how == 0:
        changed[at] ^= 1 << chance.randrange(8)
    elif how == 1:
        changed[at] = chance.randrange(256)
    elif how == 2:
        width = chance.choice((1, 2, 4, 8))
        edge = chance.choice(EDGES) % (1 << 8 * width)
        changed[at : at + width] = edge.to_bytes(width)
    elif how == 3:
        del changed[at : at + chance.randrange(1, 9)]
    elif how == 4:
        changed[at:at] = chance.randbytes(chance.randrange(1, 9))
    else:
        changed[at:at] = changed[at : at + chance.randrange(1, 33)] * chance.randrange(1, 9)
    return bytes(changed)


def is_last(answer: bytes) -> bool:
    """Tell whether what came ends with the broker's last word, of AMQP or of HTTP."""
    return answer[-12:] == CLOSE_OK or answer.startswith(b"HTTP/")


class Worker(threading.Thread):
    """Sends one mutated session after the other."""

    def __init__(self, ports: tuple[int, int], seed: int, runs: int, score: Score) -> None:
        super().__init__(daemon=True)
        self.amqp, self.http = ports
        self.chance = random.Random(seed)
        self.runs = runs
        self.score = score
        self.stopping = threading.Event()

    def run(self) -> None:
        """Send them."""
        whole, asked = sessions(), requests()
        for _ in range(self.runs):
            if self.stopping.is_set():
                return
            if self.chance.randrange(HTTP_EACH) == 0:
                self.send(self.http, bitten(self.chance, self.chance.choice(asked)))
            else:
                self.send(self.amqp, mutated(self.chance, whole))

    def send(self, port: int, data: bytes) -> None:
        """Send a session, and hear its end."""
        answer = b""
        try:
            with (
                socket.create_connection(("127.0.0.1", port), END_SECONDS_MAX) as client,
                contextlib.suppress(ConnectionError),
            ):
                client.sendall(data)
                client.settimeout(ANSWER_SECONDS)
                with contextlib.suppress(TimeoutError):
                    # The last word comes soon, or the broker waits for more bytes.
                    while not is_last(answer) and (piece := client.recv(262_144)):
                        answer += piece
                client.settimeout(END_SECONDS_MAX)
                client.shutdown(socket.SHUT_WR)
                while piece := client.recv(262_144):
                    answer += piece
        except TimeoutError:
            self.score.problem(f"no end in {END_SECONDS_MAX} s of {data!r}")
        except OSError as error:
            self.score.problem(f"{error} at {data!r}")
            self.stopping.set()
        said = self.judged_http(answer, data) if port == self.http else self.judged(answer, data)
        with self.score.lock:
            self.score.sessions += 1
            self.score.answers[said] += 1

    def judged(self, answer: bytes, data: bytes) -> str:
        """Return how a session ended: by a code, in order, or without a word."""
        if answer[:4] == b"AMQP":
            return "header"
        said = "silence"
        try:
            for got in Inbox().feed(answer):
                if got.name in ("connection.close", "channel.close"):
                    said = str(got.code)
                    if got.code == INTERNAL_ERROR:
                        self.score.problem(f"{got} of {data!r}")
                elif got.name == "connection.close-ok":
                    said = "close-ok" if said == "silence" else said
        except (AssertionError, ValueError, KeyError, IndexError) as error:
            self.score.problem(f"not well-formed: {error!r}: {answer!r} to {data!r}")
        return said

    def judged_http(self, answer: bytes, data: bytes) -> str:
        """Return the status of an answer; 503 says that too many passwords wait."""
        status = answer[9:12].decode(errors="replace") if answer[:5] == b"HTTP/" else "silence"
        if status.startswith("5") and status not in ("501", "503", "505"):
            self.score.problem(f"HTTP: {answer[:12]!r} to {data!r}")
        return f"HTTP {status}"


class Neighbour(threading.Thread):
    """Publishes and gets, and notes how long it waits."""

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self.uri = uri
        self.waits: list[float] = []
        self.stopping = threading.Event()
        self.problem = ""

    def run(self) -> None:
        """Go on until told to stop."""
        try:
            with raw.connect(self.uri) as connection:
                connection.open_channel(1)
                connection.declare(1, "neighbour", exclusive=True)
                connection.call(1, "confirm.select")
                while not self.stopping.wait(0.005):
                    begun = time.monotonic()
                    connection.send(raw.publish(1, "", "neighbour", b"x"))
                    connection.expect(1, "basic.ack")
                    assert connection.get(1, "neighbour") is not None
                    self.waits.append(time.monotonic() - begun)
        except (AssertionError, OSError, raw.Closed) as error:
            self.problem = f"the neighbour: {error!r}"


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Send so many mutated sessions."""
    score = Score()
    growth = boots = 0
    with (
        tempfile.TemporaryDirectory(prefix="chaos-mutations-") as place,
        BrokerProcess(Path(place) / "data", settings=SETTINGS) as broker,
    ):
        line = broker.expect_line("listening on http://")
        ports = broker.port, int(line.rsplit(":", 1)[1])
        neighbour = Neighbour(broker.uri)
        neighbour.start()
        workers = [
            Worker(ports, seed * WORKERS + number, -(-runs // WORKERS), score)
            for number in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        growth = watch(broker, workers, score, say)
        neighbour.stopping.set()
        neighbour.join()
        if neighbour.problem:
            score.problem(neighbour.problem)
        try:
            broker.restart()
            boots = 1
        except BrokerProcessError as error:
            score.problem(str(error))
    waits = sorted(neighbour.waits) or [0.0]
    p99 = waits[len(waits) * 99 // 100]
    for problem in score.problems[:20]:
        say(problem[:2000])
    return [row(score, waits[-1], p99, growth, boots)]


def row(score: Score, longest: float, p99: float, growth: int, boots: int) -> Row:
    """Return the row of the scoreboard."""
    problems = len(score.problems) + (growth > RSS_GROWTH_MAX) + (longest > HANG_SECONDS_MAX)
    problems += p99 > P99_SECONDS_MAX
    answers = ", ".join(f"{said} {count:,}" for said, count in score.answers.most_common(12))
    note = (
        f"{score.sessions:,} sessions; neighbour's p99 {p99 * 1000:.1f} ms, longest "
        f"{longest * 1000:.0f} ms; memory +{growth / 1e6:.0f} MB at most; ended by {answers}"
    )
    return Row("mutated sessions", 1, boots, score.sessions, 0, 0, 0, problems, note=note)


def watch(
    broker: BrokerProcess, workers: list[Worker], score: Score, say: Callable[[str], None]
) -> int:
    """Delete what comes, until all workers are done; return by how much memory grew at most."""
    process = psutil.Process(broker.pid)
    warm = most = swept = said = 0
    while any(worker.is_alive() for worker in workers):
        time.sleep(0.2)
        if not broker.is_running():
            score.problem(f"the broker ended: {broker.output[-3000:]}")
            for worker in workers:
                worker.stopping.set()
            break
        if score.sessions >= swept + SWEEP:
            swept = score.sessions
            sweep(broker)
        rss = process.memory_info().rss
        if not warm and score.sessions >= WARM:
            warm = rss
        most = max(most, rss - warm if warm else 0)
        if score.sessions >= said + SAID_EACH:
            said = score.sessions
            say(f"{said:,} sessions, memory +{most / 1e6:.0f} MB")
    for worker in workers:
        worker.join()
    return most


def sweep(broker: BrokerProcess) -> None:
    """Delete what sessions left in the vhost."""
    api = Api(broker.data_dir / "management.sock")
    _, rows = api.ask("GET", "/api/queues/%2F")
    assert isinstance(rows, list)
    for one in rows:
        if one["name"] != "neighbour":
            api.ask("DELETE", f"/api/queues/%2F/{quote(one['name'], safe='')}")
    api.close()
