"""Everything comes and goes for hours: connections, channels, queues, bindings, messages (R22).

Workers connect, declare queues of every type, bind, publish, consume and delete, and leave in
order or by closing the socket; nothing of theirs stays for longer than some seconds.  Every few
seconds the memory, the descriptors and the files of the broker are noted.  At the end all is gone,
and the broker must be about as it was when it was warm: memory that grows by less than 1 MB in an
hour (a line through the later three quarters), as many descriptors, and no more files.

The line says little of a run of minutes: an allocator keeps some MB more or less.  So a run shorter
than an hour judges descriptors and files, and tells the slope.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from chaos.board import Row
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.wire import raw
from support.wire.raw_codec import method

NAME: Final = "churn"
#: Minutes.
RUNS: Final = 480

WORKERS: Final = 4
SAMPLE_SECONDS: Final = 5.0
SAID_SECONDS: Final = 300.0
#: A worker rests so long between two lives, so that others have the machine too.
REST_SECONDS: Final = 0.02

SLOPE_MB_PER_HOUR_MAX: Final = 1.0
#: A shorter run judges no slope.
SLOPE_SECONDS_MIN: Final = 3600.0
#: Files of the journal, of a snapshot and its predecessor, which come and go.
FILES_MORE_MAX: Final = 12
#: What may be open beside: files of the journal, and who asks.
DESCRIPTORS_MORE_MAX: Final = 8

#: Short, so that checkpoints and compactions come often.
SETTINGS: Final = {"journal_bytes_max": "4194304", "journal_file_bytes": "1048576"}

#: Longer than a busy machine takes for a life; who made such a queue leaves it to its end.
EXPIRES_MS: Final = 20_000

KINDS: Final[tuple[dict[str, Any], ...]] = (
    {"durable": True},
    {"durable": True, "arguments": {"x-queue-type": "quorum"}},
    {"durable": True, "arguments": {"x-queue-type": "stream"}},
    {"durable": True, "arguments": {"x-max-priority": 5, "x-message-ttl": 500}},
    {"durable": True, "arguments": {"x-max-length": 10, "x-dead-letter-exchange": "amq.topic"}},
    {"exclusive": True},
    {"auto_delete": True},
    {"durable": True, "arguments": {"x-expires": EXPIRES_MS}},
)
EXCHANGES: Final = ("direct", "fanout", "topic", "headers")
SIZES: Final = (0, 10, 100, 1000, 10_000, 300_000)


@dataclass
class Sample:
    """What the broker holds at a moment."""

    seconds: float
    rss: int
    descriptors: int
    files: int


@dataclass
class Counted:
    """What the workers did."""

    connections: int = 0
    channels: int = 0
    queues: int = 0
    bindings: int = 0
    published: int = 0
    confirmed: int = 0
    delivered: int = 0
    problems: list[str] = field(default_factory=list)


class Worker(threading.Thread):
    """Lives one short life of a client after the other."""

    def __init__(self, uri: str, number: int, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.uri = uri
        self.number = number
        self.chance = chance
        self.counted = Counted()
        self.stopping = threading.Event()
        self.names = 0

    def run(self) -> None:
        """Live until told to stop."""
        while not self.stopping.wait(REST_SECONDS):
            try:
                self.live()
            except (AssertionError, OSError, raw.Closed) as error:
                self.counted.problems.append(f"{type(error).__name__}: {str(error)[:300]}")

    def live(self) -> None:
        """Connect, do some things on some channels, and leave one way or the other."""
        chance = self.chance
        with raw.connect(self.uri) as connection:
            self.counted.connections += 1
            for channel in range(1, chance.randrange(2, 5)):
                connection.open_channel(channel)
                self.counted.channels += 1
                self.work(connection, channel)
                if chance.randrange(3) == 0:
                    connection.call(channel, "channel.close", code=200)
            if chance.randrange(2):
                connection.close()

    def work(self, connection: raw.Connection, channel: int) -> None:
        """Declare, publish, take, and delete what would stay."""
        chance = self.chance
        self.names += 1
        name = f"churn-{self.number}-{self.names}"
        values = chance.choice(KINDS)
        is_stream = values.get("arguments", {}).get("x-queue-type") == "stream"
        connection.declare(channel, name, **values)
        exchange = {"type": chance.choice(EXCHANGES), "durable": bool(chance.randrange(2))}
        connection.call(channel, "exchange.declare", exchange=name, **exchange)
        self.counted.queues += 1
        for key in range(chance.randrange(1, 6)):
            ends = {"queue": name, "exchange": name, "routing_key": str(key)}
            connection.call(channel, "queue.bind", **ends)
            self.counted.bindings += 1
        self.publish(connection, channel, name)
        if not is_stream:
            self.take(connection, channel, name)
        connection.call(channel, "exchange.delete", exchange=name)
        expires = "x-expires" in values.get("arguments", {})
        if not values.get("exclusive") and not expires:
            connection.call(channel, "queue.delete", queue=name)

    def publish(self, connection: raw.Connection, channel: int, name: str) -> None:
        """Publish some messages and wait for their confirms."""
        chance = self.chance
        connection.call(channel, "confirm.select")
        count = chance.randrange(1, 60)
        size = chance.choice(SIZES) if count < 8 else chance.choice(SIZES[:4])
        for _ in range(count):
            exchange, key = chance.choice((("", name), (name, str(chance.randrange(6)))))
            mode = chance.randrange(1, 3)
            body = bytes(size)
            connection.send(raw.publish(channel, exchange, key, body, delivery_mode=mode))
        self.counted.published += count
        tag = 0
        while tag < count:
            got = connection.expect(channel, "basic.ack")
            tag = got.delivery_tag
        self.counted.confirmed += count

    def take(self, connection: raw.Connection, channel: int, name: str) -> None:
        """Take some: get, or consume for a while; ack, return, or hold until the end."""
        chance = self.chance
        for _ in range(chance.randrange(20)):
            got = connection.get(channel, name, no_ack=False)
            if got is None:
                break
            self.counted.delivered += 1
            how = chance.choice(("basic.ack", "basic.nack", "basic.reject", ""))
            if how:
                connection.send(method(channel, how, delivery_tag=got.delivery_tag))


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Let all come and go for so many minutes."""
    chance = random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="chaos-churn-") as place,
        BrokerProcess(Path(place) / "data", settings=SETTINGS) as broker,
    ):
        Api(broker.data_dir / "management.sock").ask("GET", "/api/overview")
        workers = [
            Worker(broker.uri, number, random.Random(chance.getrandbits(32)))
            for number in range(WORKERS)
        ]
        for worker in workers:
            worker.start()
        samples = watch(broker, runs * 60.0, say)
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.join()
        problems = [problem for worker in workers for problem in worker.counted.problems]
        problems += judge(broker, samples)
        if broker.terminate() != 0:
            problems.append(f"the broker's end: {broker.output[-2000:]}")
    for problem in problems[:20]:
        say(problem)
    return [row(runs, samples, workers, problems)]


def watch(broker: BrokerProcess, seconds: float, say: Callable[[str], None]) -> list[Sample]:
    """Note what the broker holds until so much time has passed."""
    begun = time.monotonic()
    said = 0.0
    samples: list[Sample] = []
    while (now := time.monotonic() - begun) < seconds:
        samples.append(sample(broker, now))
        if now - said > SAID_SECONDS:
            said = now
            say(str(samples[-1]))
        time.sleep(SAMPLE_SECONDS)
    return samples


def sample(broker: BrokerProcess, now: float) -> Sample:
    """Return what the broker holds now."""
    process = psutil.Process(broker.pid)
    files = 0
    # A folder may go while it is looked at.
    with contextlib.suppress(FileNotFoundError):
        files = sum(path.is_file() for path in broker.data_dir.rglob("*"))
    return Sample(now, process.memory_info().rss, process.num_fds(), files)


def slope(samples: Sequence[Sample]) -> float:
    """Return the MB that memory grew by in an hour: least squares, without the first quarter."""
    later = samples[len(samples) // 4 :]
    if len(later) < 2:
        return 0.0
    mean_x = sum(one.seconds for one in later) / len(later)
    mean_y = sum(one.rss for one in later) / len(later)
    spread = sum((one.seconds - mean_x) ** 2 for one in later)
    together = sum((one.seconds - mean_x) * (one.rss - mean_y) for one in later)
    return together / spread * 3600 / 1e6


def judge(broker: BrokerProcess, samples: Sequence[Sample]) -> list[str]:
    """Return what is left when all is gone."""
    problems = []
    api = Api(broker.data_dir / "management.sock")
    end = time.monotonic() + 3 * EXPIRES_MS / 1000
    while True:
        _, queues = api.ask("GET", "/api/queues")
        _, connections = api.ask("GET", "/api/connections")
        if not queues and not connections:
            break
        if time.monotonic() > end:
            problems.append(f"left behind: {queues} {connections}"[:500])
            break
        time.sleep(0.2)
    warm = samples[len(samples) // 4 :]
    last = sample(broker, 0.0)
    api.close()
    # While they run, workers have a descriptor each; now nobody has.
    before = min(one.descriptors for one in warm)
    if last.descriptors > before + DESCRIPTORS_MORE_MAX:
        problems.append(f"{last.descriptors} descriptors, and {before} before")
    most = max(one.files for one in warm)
    if last.files > most + FILES_MORE_MAX:
        problems.append(f"{last.files} files, and {most} at most before")
    grown = slope(samples)
    if samples[-1].seconds >= SLOPE_SECONDS_MIN and grown > SLOPE_MB_PER_HOUR_MAX:
        problems.append(f"memory grew by {grown:.1f} MB an hour")
    return problems


def row(
    runs: int, samples: Sequence[Sample], workers: Sequence[Worker], problems: Sequence[str]
) -> Row:
    """Return the row of the scoreboard."""

    def total(name: str) -> int:
        return sum(int(getattr(worker.counted, name)) for worker in workers)

    warm = samples[len(samples) // 4 :]
    note = (
        f"{total('connections'):,} connections, {total('channels'):,} channels, "
        f"{total('queues'):,} queues, {total('bindings'):,} bindings, "
        f"{total('published'):,} messages; memory {warm[0].rss / 1e6:.0f} to "
        f"{samples[-1].rss / 1e6:.0f} MB, {slope(samples):+.1f} MB an hour; "
        f"{min(one.descriptors for one in warm)} to {max(one.descriptors for one in warm)} "
        f"descriptors, {min(one.files for one in warm)} to {max(one.files for one in warm)} files"
    )
    return Row("churn, minutes", runs, runs, total("confirmed"), 0, 0, 0, len(problems), note=note)
