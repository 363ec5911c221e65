"""A consumer that reads nothing, and memory that is short: what it costs everybody else.

    .venv/bin/python bench/pressure.py [--seconds 60] [--megabytes 600] [--only NAME] [--json]

`reader`: 50 MB a second are published to a queue whose consumer never reads its socket, for
`--seconds` (all of it waits in the queue, on the disk: 3 GB in a minute), with the memory's
watermark at 256 MiB.  Beside it one connection publishes small messages to another that reads, for
as long once with a consumer of the 50 MB that reads and once with the one that does not; the figure
is what is left of their rate.

`watermark`: with the watermark at 200 MB, and queues that may not write to the disk before, a
publisher that cares for nothing publishes `--megabytes`, 10 kB a message, while a consumer takes
them out more slowly.  Measured is how long after the alarm `connection.blocked` comes, whether the
consumer goes on meanwhile, and whether everything confirmed comes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import sides

from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.wire import raw
from support.wire.raw_codec import method

RATE_TARGET: Final = 0.8
BLOCKED_SECONDS_TARGET: Final = 1.0

#: What is published to the consumer that does not read.
BODY_BYTES: Final = 10_000
MESSAGES_PER_SECOND: Final = 5_000
#: From half of it on queues write to the disk.
READER_SETTINGS: Final = {"memory_bytes_max": "256MiB"}

WATERMARK_BYTES: Final = 200_000_000
#: No queue writes to the disk before the watermark.
WATERMARK_SETTINGS: Final = {
    "memory_bytes_max": str(WATERMARK_BYTES), "queue_window_bytes": "4GiB",
    "memory_window_bytes": "4GiB",
}  # fmt: skip
#: How long the consumer rests between two acks: it is slower than the publisher.
REST_SECONDS: Final = 0.002
PREFETCH: Final = 50
#: A broker that does nothing for so long has failed.
SECONDS_MAX: Final = 300.0


def reader(directory: Path, seconds: float) -> dict[str, float]:
    """Return what a consumer that reads nothing costs memory and others."""
    with BrokerProcess(directory, settings=READER_SETTINGS) as broker:
        side = sides.Side("Leveret", broker.port)
        empty = sides.resident(broker.pid)
        heavy = ["-P", "1", "-s", str(BODY_BYTES), "-r", str(MESSAGES_PER_SECOND)]
        alone = _beside(side, [*heavy, "-C", "1"], "bench-read", seconds)
        sides.forget_peak(broker.pid)
        with raw.connect(broker.uri) as deaf:
            deaf.open_channel(1)
            deaf.declare(1, "bench-unread")
            deaf.send(method(1, "basic.consume", queue="bench-unread", no_ack=True))
            beside = _beside(side, [*heavy, "-C", "0", "-k"], "bench-unread", seconds)
            peak = sides.peak(broker.pid) - empty
            waiting = int(sum(beside["waiting"]))
        return {
            "published_mb_per_second": beside["published"][0] * BODY_BYTES / 1e6,
            "waiting": float(waiting),
            "others_with_reader": alone["delivered"][0],
            "others_without_reader": beside["delivered"][0],
            "left": beside["delivered"][0] / alone["delivered"][0],
            "peak_mb": peak / 1e6,
            "watermark_mb": 256 * 1024 * 1024 / 1e6,
        }


def _beside(
    side: sides.Side, heavy: list[str], queue: str, seconds: float
) -> dict[str, list[float]]:
    """Put the heavy load on one queue and a light one on another; return their rates."""
    _, cpus = sides.cores("all")
    light = ["-P", "1", "-C", "1", "-s", "100", "-r", "20000"]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(sides.generate, side, heavy, queue, seconds, cpus)
        second = pool.submit(sides.generate, side, light, "bench-others", seconds, cpus)
        published, delivered = first.result()["published"], second.result()["delivered"]
    with raw.Connection("127.0.0.1", side.port).handshake() as connection:
        connection.open_channel(1)
        waiting = 0
        if queue == "bench-unread":
            waiting = connection.declare(1, queue, passive=True).message_count
    return {"published": [published], "delivered": [delivered], "waiting": [waiting]}


@dataclass
class Watched:
    """What the publisher, the consumer and the alarm did, by the monotonic clock."""

    blocked: list[float] = field(default_factory=list)
    unblocked: list[float] = field(default_factory=list)
    alarms: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    deliveries: list[float] = field(default_factory=list)
    confirmed: int = 0
    delivered: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)


def watermark(directory: Path, megabytes: int) -> dict[str, float]:
    """Return what short memory does to a publisher and to a consumer."""
    count = megabytes * 1_000_000 // BODY_BYTES
    seen = Watched()
    with BrokerProcess(directory, settings=WATERMARK_SETTINGS) as broker:
        empty = sides.resident(broker.pid)
        sides.forget_peak(broker.pid)
        with raw.connect(broker.uri) as publisher, raw.connect(broker.uri) as consumer:
            for connection in (publisher, consumer):
                connection.socket.settimeout(SECONDS_MAX)
                connection.open_channel(1)
            consumer.declare(1, "bench-watermark", durable=True)
            publisher.call(1, "confirm.select")
            threads = [
                threading.Thread(target=_publish, args=(publisher, count)),
                threading.Thread(target=_hear, args=(publisher, count, seen)),
                threading.Thread(target=_take, args=(consumer, count, seen)),
                threading.Thread(target=_look, args=(broker, seen)),
            ]
            for thread in threads:
                thread.start()
            for thread in threads[:3]:
                thread.join()
            seen.done.set()
            threads[3].join()
        peak = sides.peak(broker.pid) - empty
    return _figures(seen, peak, count)


def _figures(seen: Watched, peak: int, count: int) -> dict[str, float]:
    """Return the figures of what was seen."""
    waits = []
    for alarm in seen.alarms:
        after = [moment for moment in seen.blocked if moment > alarm - BLOCKED_SECONDS_TARGET]
        waits.append(max(0.0, min(after, default=float("inf")) - alarm))
    during = [
        (one, other) for one, other in zip(seen.deliveries, seen.deliveries[1:], strict=False)
        if any(begin < one < end for begin, end in zip(seen.alarms, seen.ends, strict=False))
    ]  # fmt: skip
    return {
        "messages": float(count),
        "alarms": float(len(seen.alarms)),
        "blocked": float(len(seen.blocked)),
        "unblocked": float(len(seen.unblocked)),
        "blocked_seconds": max(waits, default=float("inf")),
        "consumer_gap_ms": max((b - a for a, b in during), default=float("inf")) * 1000,
        "delivered_while_blocked": float(len(during)),
        "confirmed": float(seen.confirmed),
        "lost": float(seen.confirmed - len(seen.delivered)),
        "peak_mb": peak / 1e6,
        "watermark_mb": WATERMARK_BYTES / 1e6,
    }


def _publish(connection: raw.Connection, count: int) -> None:
    """Publish without waiting for anything."""
    for number in range(count):
        body = number.to_bytes(8) + bytes(BODY_BYTES - 8)
        connection.send(raw.publish(1, "", "bench-watermark", body, delivery_mode=2))


def _hear(connection: raw.Connection, count: int, seen: Watched) -> None:
    """Hear confirms, and when the connection is blocked and no longer."""
    while seen.confirmed < count:
        got = connection.next_method()
        if got.name == "connection.blocked":
            seen.blocked.append(time.monotonic())
        elif got.name == "connection.unblocked":
            seen.unblocked.append(time.monotonic())
        elif got.name == "basic.ack":
            seen.confirmed = got.delivery_tag
        else:
            seen.problems.append(str(got))


def _take(connection: raw.Connection, count: int, seen: Watched) -> None:
    """Take and ack, slowly, once the first alarm is on."""
    while not seen.alarms:
        time.sleep(0.01)
    connection.call(1, "basic.qos", prefetch_count=PREFETCH)
    connection.send(method(1, "basic.consume", queue="bench-watermark", consumer_tag="c"))
    connection.expect(1, "basic.consume-ok")
    while len(seen.delivered) < count:
        got = connection.expect(1, "basic.deliver")
        seen.deliveries.append(time.monotonic())
        seen.delivered.add(int.from_bytes(got.body[:8]))
        if got.delivery_tag % (PREFETCH // 2) == 0 or len(seen.delivered) == count:
            connection.send(method(1, "basic.ack", delivery_tag=got.delivery_tag, multiple=True))
            time.sleep(REST_SECONDS)


def _look(broker: BrokerProcess, seen: Watched) -> None:
    """Note when the alarm goes on and off."""
    api = Api(broker.data_dir / "management.sock")
    on = False
    while not seen.done.wait(0.005):
        _, nodes = api.ask("GET", "/api/nodes")
        assert isinstance(nodes, list)
        if nodes[0]["mem_alarm"] != on:
            on = not on
            (seen.alarms if on else seen.ends).append(time.monotonic())
    api.close()


def report_reader(found: dict[str, float]) -> str:
    """Return the figures of `reader` as text."""
    return (
        f"a consumer that reads nothing, {found['published_mb_per_second']:.0f} MB/s published to "
        f"its queue, {found['waiting']:,.0f} messages waiting at the end: memory grew by at most "
        f"{found['peak_mb']:.0f} MB (watermark {found['watermark_mb']:.0f}); others got "
        f"{found['others_without_reader']:,.0f} msg/s, with a reader "
        f"{found['others_with_reader']:,.0f}: {found['left']:.2f} (at least {RATE_TARGET})"
    )


def report_watermark(found: dict[str, float]) -> str:
    """Return the figures of `watermark` as text."""
    return (
        f"a watermark of {found['watermark_mb']:.0f} MB, {found['messages']:,.0f} messages of "
        f"{BODY_BYTES // 1000} kB: {found['alarms']:.0f} alarms seen, "
        f"{found['blocked']:.0f} times blocked "
        f"within {found['blocked_seconds']:.3f} s (at most {BLOCKED_SECONDS_TARGET:.0f}), "
        f"{found['unblocked']:.0f} times unblocked; the consumer got "
        f"{found['delivered_while_blocked']:,.0f} messages meanwhile, the longest pause "
        f"{found['consumer_gap_ms']:.0f} ms; {found['confirmed']:,.0f} confirmed, "
        f"{found['lost']:.0f} lost; memory grew by at most {found['peak_mb']:.0f} MB"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--only", choices=["reader", "watermark"])
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sides.build_generator()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-pressure-", dir=options.dir) as place:
        if options.only != "watermark":
            found["reader"] = reader(Path(place) / "reader", options.seconds)
        if options.only != "reader":
            found["watermark"] = watermark(Path(place) / "watermark", options.megabytes)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(sides.version(sys.executable))
    if "reader" in found:
        print(report_reader(found["reader"]))
    if "watermark" in found:
        print(report_watermark(found["watermark"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
