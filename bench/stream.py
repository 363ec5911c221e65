"""A long stream: publish rate, memory, disk, restarts, times that are found, and slow readers.

    .venv/bin/python bench/stream.py [--messages 100000000] [--size 100] [--json]

Persistent messages go to one stream, each confirmed after its sync, in rounds.  After each round
the resident set of the broker's process is looked at.  Then the broker is killed and started,
stopped and started, and read: from times all along it to the first message, which must not be of
the second before, and from the front on by one reader, alone and beside others that
stand still at places of their own.  At last Spark counts one hundredth of the time by a filter on
`timestamp`, and what the broker has read of its files for it is told.

100,000,000 messages of 100 bytes take 17 GB of disk, and as much as the journal besides.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import sides

from leveret.chunk import Chunk
from leveret.client import Timestamp, blocking
from support.brokers.broker_process import BrokerProcess

STREAM: Final = "bench-stream"
ARGUMENTS: Final = {"x-queue-type": "stream"}

#: Messages that a round publishes.
ROUND: Final = 5_000_000

#: Times that are looked for, and messages that a reader reads, of chunks and one by one.
TIMES: Final = 50
CHUNKS: Final = 10_000_000
READ: Final = 200_000

#: Readers that stand still meanwhile.
SLOW: Final = 100

PREFETCH: Final = 2000

#: How long a round may take, without its end.
FILL_SECONDS_MAX: Final = 180.0

CREDENTIALS: Final = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


@dataclass(frozen=True)
class Figure:
    """A figure in the report, and what is asked of it."""

    name: str
    title: str
    unit: str
    at_most: float = 0.0

    def line(self, value: float) -> str:
        """Return the figure as a line of text."""
        wanted = f" (at most {self.at_most:,.0f})" if self.at_most else ""
        digits = 2 if self.unit in ("s", "ms") else 0
        return f"{self.title}: {value:,.{digits}f} {self.unit}{wanted}"


FIGURES: Final = [
    Figure("published", "published and confirmed", "msg/s"),
    Figure("first_round", "in the first round", "msg/s"),
    Figure("last_round", "in the last round", "msg/s"),
    Figure("growth_first", "memory grown after the first round by", "MB"),
    Figure("growth", "memory grown in the end by", "MB"),
    Figure("peak_growth", "and at most by", "MB"),
    Figure("disk", "on disk", "MB"),
    Figure("killed", "killed and ready again", "s"),
    Figure("killed_growth", "memory above that of the empty broker then", "MB"),
    Figure("stopped", "SIGTERM to the end of the process", "s"),
    Figure("started", "started after that", "s"),
    Figure("started_growth", "memory above that of the empty broker then", "MB"),
    Figure("find_median", "the offset of a time, over HTTP, median", "ms", at_most=10),
    Figure("find_max", "and at most", "ms"),
    Figure("consume_median", "a consumer from a time to its first message, median", "ms"),
    Figure("chunks", "chunks read over HTTP", "msg/s"),
    Figure("chunk_bytes", "which are", "MB/s"),
    Figure("read", "read from the front on by one reader", "msg/s"),
    Figure("read_beside", f"the same beside {SLOW} that stand still", "msg/s"),
    Figure("read_peak", "memory meanwhile at most, above that of the empty broker", "MB"),
    Figure("spark_rows", "rows that Spark found by a filter on time", "rows"),
    Figure("spark_seconds", "in", "s"),
    Figure("spark_bytes", "for which the broker read", "MB"),
    Figure("spark_share", "which is of the stream", "%"),
]


def measure(directory: Path, messages: int, size: int, each: int) -> dict[str, float]:
    """Return the figures of one run on an empty data directory, by name."""
    found: dict[str, float] = {}
    with BrokerProcess(directory, settings={"http_port": "0"}) as broker:
        empty = sides.resident(broker.pid)

        def growth(bytes_held: int) -> float:
            return (bytes_held - empty) / 1e6

        sides.forget_peak(broker.pid)
        began = time.time()
        rates, grown = publish(broker, messages, size, each)
        ended = time.time()
        found["published"] = messages / sum(count / rate for count, rate in rates)
        found["first_round"], found["last_round"] = rates[0][1], rates[-1][1]
        found["growth_first"], found["growth"] = growth(grown[0]), growth(grown[-1])
        found["peak_growth"] = growth(sides.peak(broker.pid))
        found["disk"] = sides.disk_bytes(directory) / 1e6
        broker.kill()
        found["killed"] = start(broker)
        found["killed_growth"] = growth(sides.resident(broker.pid))
        check_count(broker, messages)
        now = time.monotonic()
        code = broker.terminate()
        found["stopped"] = time.monotonic() - now
        if code != 0:
            raise RuntimeError(f"the broker stopped with exit code {code}\n{broker.output}")
        found["started"] = start(broker)
        found["started_growth"] = growth(sides.resident(broker.pid))
        check_count(broker, messages)
        taken = find(broker, began, ended)
        found["find_median"], found["find_max"] = statistics.median(taken), max(taken)
        found["consume_median"] = statistics.median(consume_at(broker, began, ended))
        sides.forget_peak(broker.pid)
        found["chunks"], found["chunk_bytes"] = read_chunks(broker, min(CHUNKS, messages))
        count = min(READ, messages // 2)
        found["read"] = read(broker, count)
        with ExitStack() as slow:
            stand_still(broker, slow, messages)
            found["read_beside"] = read(broker, count)
        found["read_peak"] = growth(sides.peak(broker.pid))
        found |= filter_by_time(broker, began, ended, messages)
        found["spark_share"] = 100 * found["spark_bytes"] / found["disk"]
    return found


def publish(
    broker: BrokerProcess, messages: int, size: int, each: int
) -> tuple[list[tuple[int, float]], list[int]]:
    """Publish in rounds; return of each its messages and confirms per second, and the memory."""
    side = sides.Side("Leveret", broker.port)
    _, generator = sides.cores("all")
    rates: list[tuple[int, float]] = []
    held: list[int] = []
    left = messages
    while left > 0:
        count = min(each, left)
        left -= count
        flags = ["-P", "1", "-C", "0", "-c", "1000", "-d", "-k", "-x", "stream"]
        flags += ["-s", str(size), "-n", str(count)]
        figures = sides.generate(side, flags, STREAM, FILL_SECONDS_MAX, generator)
        rates.append((count, figures["confirmed"]))
        held.append(sides.resident(broker.pid))
        told = f"{messages - left:,} at {rates[-1][1]:,.0f} msg/s, {held[-1] / 1e6:.0f} MB"
        print(told, file=sys.stderr, flush=True)
    return rates, held


def start(broker: BrokerProcess) -> float:
    """Start the broker; return the seconds until it is ready."""
    began = time.monotonic()
    broker.start()
    return time.monotonic() - began


def dial(broker: BrokerProcess) -> blocking.Connection:
    """Return a connection to the broker."""
    return blocking.connect(f"amqp://guest:guest@localhost:{broker.port}/")


def check_count(broker: BrokerProcess, messages: int) -> None:
    """Check that every message is there."""
    with dial(broker) as connection:
        declared = connection.channel().queue_declare(
            STREAM, durable=True, passive=True, arguments=ARGUMENTS
        )
    if declared.message_count != messages:
        raise RuntimeError(f"{declared.message_count:,} messages of {messages:,} are there")


def find(broker: BrokerProcess, began: float, ended: float) -> list[float]:
    """Return the ms that each of some times took to be found, to the message."""
    taken: list[float] = []
    connection = web(broker)
    for number in range(TIMES):
        time_ms = int((began + (ended - began) * number / TIMES) * 1000)
        now = time.monotonic()
        answer = json.loads(ask(connection, f"/offset?timestamp={time_ms}"))
        taken.append((time.monotonic() - now) * 1000)
        check_offset(connection, int(answer["offset"]), time_ms)
    connection.close()
    return taken


def web(broker: BrokerProcess) -> http.client.HTTPConnection:
    """Return a connection to the broker's HTTP port."""
    with dial(broker) as connection:
        port = int(str(connection.server_properties["http_port"]))
    return http.client.HTTPConnection("localhost", port, timeout=60)


def ask(connection: http.client.HTTPConnection, path: str) -> bytes:
    """Return what the broker says of the stream."""
    connection.request("GET", f"/api/streams/%2F/{STREAM}{path}", headers=CREDENTIALS)
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != http.client.OK:
        raise RuntimeError(f"{answer.status} for {path}: {data[:200]!r}")
    return data


def check_offset(connection: http.client.HTTPConnection, offset: int, time_ms: int) -> None:
    """Check that the message at an offset is the first one of a time."""
    first = max(offset - 1, 0)
    for chunk in chunks_of(ask(connection, f"/chunks?offset={first}&end={offset + 1}")):
        for row in range(chunk.count):
            late = chunk.timestamp_ms(row) >= time_ms
            if late != (chunk.sequence(row) >= offset):
                raise RuntimeError(f"{offset} is not the first offset of {time_ms}")


def chunks_of(data: bytes) -> Iterator[Chunk]:
    """Yield the chunks of an answer."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 96 : at + 104], "little")
        yield Chunk(data[at : at + size])
        at += size


def read_chunks(broker: BrokerProcess, messages: int) -> tuple[float, float]:
    """Read so many messages as chunks; return how many came per second, and their MB."""
    connection = web(broker)
    offset = size = 0
    began = time.monotonic()
    while offset < messages:
        connection.request(
            "GET", f"/api/streams/%2F/{STREAM}/chunks?offset={offset}", headers=CREDENTIALS
        )
        answer = connection.getresponse()
        offset = int(str(answer.getheader("Leveret-End-Offset")))
        size += len(answer.read())
    seconds = time.monotonic() - began
    connection.close()
    return offset / seconds, size / 1e6 / seconds


def consume_at(broker: BrokerProcess, began: float, ended: float) -> list[float]:
    """Return the ms that a consumer took from some seconds to the first message of each."""
    seconds = range(int(began) + 1, int(ended) + 1)
    taken: list[float] = []
    with dial(broker) as connection:
        channel = connection.channel()
        channel.qos(prefetch_count=1)
        for number in range(TIMES):
            second = seconds[len(seconds) * number // TIMES]
            now = time.monotonic()
            consumer = channel.consume(
                STREAM,
                arguments={"x-stream-offset": Timestamp(second)},
                inactivity_timeout=10,
            )
            message = next(iter(consumer))
            taken.append((time.monotonic() - now) * 1000)
            message.ack()
            consumer.cancel()
            if int(str(message.headers["x-stream-timestamp"])) < second * 1000:
                raise RuntimeError(f"a message before the second {second} came")
    return taken


def read(broker: BrokerProcess, count: int) -> float:
    """Read so many messages from the front on; return how many came per second."""
    with dial(broker) as connection:
        channel = connection.channel()
        channel.qos(prefetch_count=PREFETCH)
        consumer = channel.consume(
            STREAM, arguments={"x-stream-offset": "first"}, inactivity_timeout=30
        )
        began = time.monotonic()
        for number, message in enumerate(consumer):
            if message.headers["x-stream-offset"] != number:
                raise RuntimeError(f"{message.headers['x-stream-offset']} came, not {number}")
            message.ack()
            if number == count - 1:
                return count / (time.monotonic() - began)
    raise RuntimeError(f"fewer than {count:,} messages came")


def stand_still(broker: BrokerProcess, slow: ExitStack, messages: int) -> None:
    """Begin to consume at many places, and take one message of each."""
    connection = slow.enter_context(dial(broker))
    channel = connection.channel()
    channel.qos(prefetch_count=1)
    for number in range(SLOW):
        consumer = channel.consume(
            STREAM,
            arguments={"x-stream-offset": messages // SLOW * number},
            inactivity_timeout=30,
        )
        next(iter(consumer))


def filter_by_time(
    broker: BrokerProcess, began: float, ended: float, messages: int
) -> dict[str, float]:
    """Let Spark count the messages of a hundredth of the time; return what it took.

    The rows must be those between the offsets of the two times, and all of them.
    """
    from pyspark.sql import functions as f

    import leveret.spark

    times = [int((began + (ended - began) * share) * 1000) for share in (0.5, 0.51)]
    connection = web(broker)
    first, last = (
        int(json.loads(ask(connection, f"/offset?timestamp={time_ms}"))["offset"])
        for time_ms in times
    )
    connection.close()
    spark = leveret.spark.session("bench", master="local[2]")
    try:
        spark.sparkContext.setLogLevel("ERROR")
        options = {"uri": broker.uri, "stream": STREAM}
        moment = f.col("timestamp")
        low, high = (f.timestamp_millis(f.lit(time_ms)) for time_ms in times)
        rows = spark.read.format("leveret").options(**options).load()
        chosen = rows.where((moment >= low) & (moment < high))
        # Once to start what Spark and Python start for the first query.
        spark.read.format("leveret").options(
            **options, endingOffsets=f'{{"{STREAM}": 1}}'
        ).load().count()
        process = psutil.Process(broker.pid)
        read_before = process.io_counters().read_chars
        now = time.monotonic()
        found = chosen.agg(f.count("*"), f.min("offset"), f.max("offset")).collect()[0]
        seconds = time.monotonic() - now
        taken = process.io_counters().read_chars - read_before
    finally:
        spark.stop()
    if not messages > last > first or tuple(found) != (last - first, first, last - 1):
        raise RuntimeError(f"Spark found {tuple(found)}, not what is from {first} to {last}")
    return {"spark_rows": found[0], "spark_seconds": seconds, "spark_bytes": taken / 1e6}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    parser.add_argument("--round", type=int, default=ROUND, help="messages of a round")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sides.build_generator()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-stream-", dir=options.dir) as directory:
        found = measure(Path(directory), options.messages, options.size, options.round)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(f"{sides.version(sys.executable)}, load {load:.2f} before")
    print(f"{options.messages:,} messages of {options.size} bytes in one stream")
    print("\n".join(figure.line(found[figure.name]) for figure in FIGURES))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
