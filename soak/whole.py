"""Readers look all the time while batches of 1 to 500,000 rows are written, and processes die.

The rows go to a stream and to a queue, which take over the batches, and to a stream by its routing
key, which gets them in parts.  Whatever a reader looks with, it must find whole batches: by AMQP
and HTTP, in chunks, by Spark, and in the files of a broker that was killed.  At the end every row
must be there once, in order.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from leveret.client.blocking import connect
from leveret.errors import AmqpError
from leveret.spark.columns.schema import ROW
from leveret.spark.options.read import parse_options
from leveret.spark.transport import Interrupted
from leveret.spark.transports.bulk import BulkTransport
from leveret.spark.transports.files import FilesTransport
from soak import ROOT, environment
from soak.board import Row
from soak.world import SoakError
from support.brokers.broker_process import BrokerProcess

NAME: Final = "whole"
#: Batches; writer or broker are killed half as often.
RUNS: Final = 200

ROWS_MAX: Final = 500_000
BODY_BYTES: Final = 16

#: Where rows go, and the sink's options; without options by their columns.
DESTINATIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "stream": {"stream": "stream"},
    "queue": {"queue": "queue"},
    "parts": {},
}
STREAMS: Final = ("stream", "parts")

#: A kill comes so long after the last one.
SECONDS: Final = (0.2, 4.0)
#: How long the writer may take for a batch, with the kills in between.
PROGRESS_SECONDS_MAX: Final = 600.0


def size_of(seed: int, batch: int) -> int:
    """Return the number of rows of a batch: small ones are as frequent as large ones."""
    return int(math.exp(random.Random(f"{seed}/{batch}").uniform(0, math.log(ROWS_MAX))))


def done_file(place: Path) -> Path:
    """Return the file that says how many batches are written."""
    return place / "done"


def batches_done(place: Path) -> int:
    """Return how many batches are written."""
    return int(done_file(place).read_text()) if done_file(place).exists() else 0


class Looks:
    """What readers have seen: how often they looked, and when a part of a batch was there."""

    def __init__(self, seed: int, batches: int) -> None:
        sizes = [size_of(seed, batch) for batch in range(batches)]
        self.whole: Final = frozenset(itertools.accumulate([0, *sizes]))
        self.rows: Final = sum(sizes)
        self.count = 0
        self.partial: dict[str, list[str]] = {name: [] for name in DESTINATIONS}
        self._lock = threading.Lock()

    def saw(self, name: str, how: str, rows: int) -> None:
        """Note that a reader found so many rows."""
        with self._lock:
            self.count += 1
            if rows not in self.whole:
                self.partial[name].append(f"{how}: {rows:,}")


class Readers:
    """Threads and a process that look until the end; a broker that is not there is passed over."""

    def __init__(self, broker: BrokerProcess, looks: Looks, place: Path) -> None:
        self._uri = broker.uri
        self._looks = looks
        self._ended = threading.Event()
        jobs: list[Callable[[], None]] = [self._count]
        jobs += [lambda name=name: self._read(name) for name in STREAMS]  # type: ignore[misc]
        self._threads = [threading.Thread(target=self._repeat, args=(job,)) for job in jobs]
        for thread in self._threads:
            thread.start()
        self._spark_log = (place / "spark.log").open("w+b")
        self._spark = subprocess.Popen(
            [sys.executable, "-m", "soak.whole_reader", self._uri, *STREAMS],
            env=environment(),
            cwd=ROOT,
            stdout=self._spark_log,
            stderr=subprocess.DEVNULL,
        )

    def _repeat(self, job: Callable[[], None]) -> None:
        while not self._ended.wait(0.02):
            try:
                job()
            except (Interrupted, AmqpError, OSError):
                self._ended.wait(0.2)

    def _count(self) -> None:
        """Ask over AMQP how many messages are there."""
        with connect(self._uri, recover=False) as connection, connection.channel() as channel:
            while not self._ended.is_set():
                for name in DESTINATIONS:
                    found = channel.queue_declare(name, passive=True).message_count
                    self._looks.saw(name, "AMQP", found)

    def _read(self, name: str) -> None:
        """Ask over HTTP for the end of a stream, and read its chunks up to wherever it ends."""
        transport = BulkTransport(parse_options({"uri": self._uri, "stream": name}), name, ROW)
        try:
            end = transport.bounds().latest
            self._looks.saw(name, "HTTP", end)
            start = max(end - 2 * ROWS_MAX, 0)
            rows = sum(piece.end - piece.start for piece in transport.read(start, 2**62))
            self._looks.saw(name, "chunks", start + rows)
        finally:
            transport.close()

    def end(self) -> None:
        """End all readers, and note what Spark saw."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._spark.terminate()
        self._spark.wait()
        self._spark_log.seek(0)
        for line in self._spark_log.read().decode().splitlines():
            name, rows = line.split()
            self._looks.saw(name, "Spark", int(rows))
        self._spark_log.close()


def run(runs: int, seed: int, say: Callable[[str], None]) -> Iterator[Row]:
    """Write so many batches; yield a row for each destination.  Raises: SoakError."""
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    chance = random.Random(seed)
    looks = Looks(seed, runs)
    broker = BrokerProcess(place / "broker").start()
    broker.flags = ["--port", str(broker.port)]
    with connect(broker.uri, recover=False) as connection, connection.channel() as channel:
        for name in DESTINATIONS:
            kind = "stream" if name in STREAMS else "classic"
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    given = {"place": str(place), "uri": broker.uri, "batches": runs, "seed": seed}
    readers = Readers(broker, looks, place)
    kills = 0
    try:
        writer = _start_writer(given, place)
        until = time.monotonic() + PROGRESS_SECONDS_MAX
        last = 0
        while (done := batches_done(place)) < runs:
            if done > last:
                last, until = done, time.monotonic() + PROGRESS_SECONDS_MAX
            if time.monotonic() > until:
                raise SoakError(f"no batch in {PROGRESS_SECONDS_MAX:.0f} s: {_tail(place)}")
            time.sleep(chance.uniform(*SECONDS))
            if kills * 2 < done and chance.randrange(2):
                broker.kill()
                _look_into_files(place, looks)
                broker.start()
                kills += 1
            elif kills * 2 < done or writer.poll() is not None:
                writer.kill()
                writer.wait()
                writer = _start_writer(given, place)
                kills += 1
    finally:
        readers.end()
    say(f"{runs:,} batches, {kills:,} kills, {looks.count:,} looks")
    for name in DESTINATIONS:
        yield _judged(name, broker, looks, kills, runs, seed)
    broker.kill()
    shutil.rmtree(place)


def _start_writer(given: dict[str, Any], place: Path) -> subprocess.Popen[bytes]:
    with (place / "writer.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "soak.whole_writer", json.dumps(given)],
            env=environment(),
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )


def _tail(place: Path) -> str:
    return (place / "writer.log").read_text(errors="replace")[-2000:]


def _look_into_files(place: Path, looks: Looks) -> None:
    """Read the data directory of the killed broker."""
    for name in STREAMS:
        options = parse_options({"uri": f"file://{place / 'broker'}", "stream": name})
        transport = FilesTransport(options, name, ROW)
        try:
            end = transport.bounds().latest
            rows = sum(piece.end - piece.start for piece in transport.read(0, end))
        finally:
            transport.close()
        looks.saw(name, "files", rows)


def _judged(
    name: str, broker: BrokerProcess, looks: Looks, kills: int, runs: int, seed: int
) -> Row:
    """Read everything, and compare it with what was written."""
    with connect(broker.uri, recover=False) as connection, connection.channel() as channel:
        count = channel.queue_declare(name, passive=True).message_count
        channel.qos(10_000)
        arguments: dict[str, object] = {"x-stream-offset": "first"} if name in STREAMS else {}
        consumer = channel.consume(name, arguments=arguments)
        bodies = []
        for number, message in enumerate(itertools.islice(consumer, count), 1):
            bodies.append(bytes(message.body))
            if number % 5_000 == 0:
                channel.ack(message.delivery_tag, multiple=True)
    found = np.frombuffer(b"".join(bodies), ">i8").reshape(-1, 2).astype(np.int64)
    keys = found[:, 0] * ROWS_MAX + found[:, 1]
    sizes = [size_of(seed, batch) for batch in range(runs)]
    wanted = np.concatenate(
        [np.arange(size) + batch * ROWS_MAX for batch, size in enumerate(sizes)]
    )
    distinct = np.unique(keys)
    partial = looks.partial[name]
    note = f"{looks.count:,} looks, {len(partial):,} at a part of a batch {partial[:3] or ''}"
    return Row(
        f"whole batches: {name}",
        kills,
        looks.rows,
        len(keys),
        len(distinct),
        len(np.setdiff1d(wanted, distinct)),
        len(np.setdiff1d(distinct, wanted)) + len(partial),
        len(keys) - len(distinct),
        int((np.diff(keys) < 0).sum()),
        note,
    )
