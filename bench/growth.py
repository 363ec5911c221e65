"""What the next message, declare or connection costs when there are many: curves over the number.

Each point has a broker of its own on an empty directory, and all memory is the growth of that
broker's resident set.  A point is left out if the previous one predicts, or the point itself shows,
that it takes longer than the limit.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
import sides
from scenarios import ACKED, ONE, say

from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.http.http_api import Api

QUEUE: Final = "bench-growth"
#: Declares without any load.
DECLARE: Final = ("-P", "0", "-C", "0", "-d", "-k")
#: Queues that HTTP is asked for, one by one.
ASKED: Final = 100
#: Persistent messages of a backlog, whose bodies begin with their number: the generator fails where
#: one does not follow the one before it, so what is drained was in order and whole.
BODY_BYTES: Final = 100
FILL: Final = ("-P", "1", "-C", "0", "-c", "1000", "-d", "-o", "-k", "-s", str(BODY_BYTES))
DRAIN: Final = ("-P", "0", "-C", "1", "-q", "4000", "-a", "1000", "-d", "-o")
#: Descriptors that the broker and the generator need beside those of connections.
DESCRIPTORS_BESIDE: Final = 200
#: Connections are left idle for so many times the length of a load.
IDLE_TIMES: Final = 10
#: How long a broker may take to close the connections of a client that has gone.
CLOSING_SECONDS_MAX: Final = 60.0


@dataclass
class Point:
    """A broker to measure at one number of things; `found` takes the figures."""

    side: sides.Side
    count: int
    seconds: float
    limit: float
    found: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sides.first_confirm(self.side.port)
        self.empty = sides.resident(self.side.pid)

    def generate(self, *flags: str, queue: str = QUEUE, seconds: float = 0) -> dict[str, float]:
        """Run the generator on the broker; return its figures.  Raises: GeneratorError."""
        _, cpus = sides.cores("all")
        return sides.generate(self.side, flags, queue, seconds, cpus, limit=self.limit)

    def each_us(self, rate: str, *flags: str, queue: str = QUEUE, seconds: float = 0) -> float:
        """Return the microseconds of a message by a rate of a load.  Raises: GeneratorError."""
        per_second = self.generate(*flags, queue=queue, seconds=seconds).get(rate)
        if not per_second:
            raise sides.GeneratorError(f"{self.side.name}: no message was {rate}")
        return 1e6 / per_second

    def message(self, *flags: str, queue: str = QUEUE) -> None:
        """Measure the microseconds of a message under some load."""
        took = self.each_us("delivered", *flags, queue=queue, seconds=self.seconds)
        self.found["message_us"] = took

    def memory(self, name: str) -> None:
        """Measure the bytes of memory of each of the things."""
        grown = sides.resident(self.side.pid) - self.empty
        self.found[name] = max(grown, 0) / self.count

    def restart(self) -> None:
        """Kill and start the broker, and measure how long it takes to be ready."""
        self.found["killed_s"], self.side = sides.killed(self.side)


def queues(point: Point) -> None:
    """Declare durable queues; then put a load on another one."""
    if point.side.api is not None:
        with contextlib.closing(Api(point.side.api)) as api:
            # No limit: a user may have 250,000 queues otherwise.
            assert api.change("PUT", "/api/user-limits/guest/max-queues", {"value": -1}) < 300
    # A vhost of Leveret has a million queues at most, and three more are declared beside these.
    count = point.count - 3
    took = sides.declare_queues(point.side, count, QUEUE, point.limit)
    point.found["declare_us"] = took / count * 1e6
    point.memory("memory_bytes")
    point.restart()
    if point.side.api is not None:
        point.memory("restarted_bytes")
        point.found["asked_ms"] = asked(point.side.api, count)
    point.message(*ONE, "-s", "16", queue="bench-other")


def asked(path: Path, count: int) -> float:
    """Return the median time in ms of the HTTP API's answer about one of the queues."""
    with contextlib.closing(Api(path)) as api:
        # The first question loads the framework.
        api.answer("/api/overview")
        waits = []
        for number in range(ASKED):
            began = time.monotonic()
            api.answer(f"/api/queues/%2F/{QUEUE}-more-{number * count // ASKED}")
            waits.append((time.monotonic() - began) * 1000)
    return statistics.median(waits)


def bindings(point: Point) -> None:
    """Bind a queue to a topic exchange by many keys; then publish to the exchange."""
    keys = ("-T", str(point.count))
    point.found["declare_us"] = point.generate(*DECLARE, *keys)["setup"] / point.count * 1e6
    point.memory("memory_bytes")
    point.restart()
    point.message(*ONE, *keys, "-e", "-s", "16")


def waiting(point: Point) -> None:
    """Fill a durable queue, kill, stop, and drain it in order; then fill it and pass through it."""
    number = ("-n", str(point.count))
    sides.forget_peak(point.side.pid)
    point.found["fill_us"] = point.each_us("confirmed", *FILL, *number)
    point.memory("memory_bytes")
    point.found["peak_mb"] = (sides.peak(point.side.pid) - point.empty) / 1e6
    broker = point.side.broker
    if isinstance(broker, BrokerProcess):
        point.found["disk_bytes"] = sides.disk_bytes(broker.data_dir) / point.count
    point.restart()
    if isinstance(broker, BrokerProcess):
        began = time.monotonic()
        code = broker.terminate()
        point.found["stopped_s"] = time.monotonic() - began
        if code != 0:
            raise BrokerProcessError(f"it stopped with exit code {code}\n{broker.output}")
        point.found["started_s"], point.side = sides.started(point.side)
    point.found["drain_us"] = point.each_us("delivered", *DRAIN, *number)
    point.generate(*FILL, *number)
    size = ("-s", str(BODY_BYTES))
    point.message(*ONE, *ACKED, "-d", "-e", *size)


def connections(point: Point) -> None:
    """Open connections that stay idle; then put a load on another one."""
    process = psutil.Process(point.side.pid)
    before = process.num_fds()
    with idle(point) as took:
        point.found["open_us"] = took / point.count * 1e6
        point.memory("memory_bytes")
        spent, seconds = sides.processor_seconds(point.side), IDLE_TIMES * point.seconds
        time.sleep(seconds)
        spent = sides.processor_seconds(point.side) - spent
        point.found["idle_percent"] = 100 * spent / seconds
        point.message(*ONE, "-s", "16", queue="bench-other")
    ended = time.monotonic()
    while process.num_fds() > before and time.monotonic() - ended < CLOSING_SECONDS_MAX:
        time.sleep(0.05)
    point.found["descriptors_left"] = max(process.num_fds() - before, 0)


@contextlib.contextmanager
def idle(point: Point) -> Iterator[float]:
    """Keep idle connections open; yield the seconds that it took to open them.

    Raises: GeneratorError if one could not be opened, or was no longer served at the end.
    """
    _, cpus = sides.cores("all")
    flags = ("-P", "0", "-C", "0", "-I", str(point.count))
    process = sides.generator(point.side, flags, QUEUE, sides.LASTING_SECONDS_MAX, cpus)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("setup "):
            raise sides.GeneratorError(f"{point.side.name}: {process.communicate()[1].strip()}")
        yield float(line.split()[1])
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=point.limit)
        if process.returncode != 0:
            raise sides.GeneratorError(f"{point.side.name}: not all served: {error.strip()}")
    except subprocess.TimeoutExpired:
        raise sides.GeneratorError(f"{point.side.name}: not all served") from None
    finally:
        process.kill()
        process.communicate()


@dataclass(frozen=True)
class Growth:
    """Something of which there may be many."""

    name: str
    title: str
    counts: tuple[int, ...]
    measure: Callable[[Point], None]
    #: What the figures are, in the order of the page: first what one more of them costs.
    figures: dict[str, str]


MESSAGE: Final = "µs per message"
MEMORY: Final = "bytes of memory each"
KILLED: Final = "s from a kill until ready"
MANY: Final = (100, 10_000, 1_000_000)

GROWTHS: Final = (
    Growth(
        "queues", "durable queues", MANY, queues,
        {
            "declare_us": "µs per declare", "message_us": f"{MESSAGE} of another queue, 16 B, "
            "auto-ack", "memory_bytes": MEMORY, "restarted_bytes": f"{MEMORY}, after the kill",
            "killed_s": KILLED, "asked_ms": "ms for one queue over HTTP",
        },
    ),
    Growth(
        "bindings", "bindings of a topic exchange", MANY, bindings,
        {
            "declare_us": "µs per binding declared", "message_us": f"{MESSAGE} through the "
            "exchange, 16 B, auto-ack", "memory_bytes": MEMORY, "killed_s": KILLED,
        },
    ),
    Growth(
        "backlog", f"persistent messages of {BODY_BYTES} B in a durable queue", MANY, waiting,
        {
            "fill_us": f"{MESSAGE} published and confirmed", "drain_us": f"{MESSAGE} drained in "
            "order, acked", "message_us": f"{MESSAGE} through the queue while they wait",
            "memory_bytes": MEMORY, "peak_mb": "MB of memory at most, while it was filled",
            "disk_bytes": "bytes of disk each", "killed_s": KILLED,
            "stopped_s": "s from SIGTERM to the end", "started_s": "s of a start after that",
        },
    ),
    Growth(
        "connections", "idle connections with a channel each", (100, 10_000), connections,
        {
            "open_us": "µs per connection opened", "message_us": f"{MESSAGE} of another "
            "connection, 16 B, auto-ack", "memory_bytes": MEMORY, "idle_percent":
            "% of a core while all are idle", "descriptors_left": "descriptors left afterwards",
        },
    ),
)  # fmt: skip

#: Starts a broker on an empty directory.
Start = Callable[[], contextlib.AbstractContextManager[sides.Side]]
#: Side → number of things → figure.
Grown = dict[str, dict[str, dict[str, float]]]


def measure(
    starts: dict[str, Start], growth: Growth, counts: Sequence[int], seconds: float, limit: float
) -> tuple[Grown, list[str]]:
    """Return the figures of all points, and why others were left out.

    `limit` is how many seconds a point may take.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # -1 is no limit.
    allowed = min(max(counts) + DESCRIPTORS_BESIDE, hard if hard > 0 else sys.maxsize)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    found: Grown = {}
    left_out: list[str] = []
    for name, start in starts.items():
        each_us = 0.0
        for count in counts:
            what = f"{count:,} {growth.title}: {name}"
            if each_us * count > limit * 1e6:
                left_out.append(f"{what}: more than {limit:.0f} s")
                break
            say(what)
            try:
                with start() as side:
                    point = Point(side, count, seconds, limit)
                    growth.measure(point)
            except Exception as error:  # noqa: BLE001  the other points are worth having
                left_out.append(f"{what}: {error}")
                break
            found.setdefault(name, {})[str(count)] = point.found
            each_us = point.found[next(iter(growth.figures))]
    return found, left_out
