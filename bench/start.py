"""How long a start and a stop take: cold to the first confirm, and with a million messages.

    .venv/bin/python bench/start.py [--rounds 5] [--queued 1000000] [--rabbitmq] [--json]

From the start of the process until the confirm of a persistent message on a durable queue, which
is synced before: to be at most 0.7 s.  Every round has an empty data directory; the files of the
programs are in the page cache after the first one.  Memory is the resident set of the broker's
processes once it is ready and after that message: to be at most 70 MB.

Then Leveret is filled with persistent messages of 100 bytes in one durable queue, killed by SIGKILL
and started (ready again in at most 3 s), stopped by SIGTERM (at most 2 s, exit code 0) and started.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import backlog
import psutil
import rabbitmq
import sides

from support.brokers.broker_process import BrokerProcess

SECONDS_TARGET: Final = 0.7
MEGABYTES_TARGET: Final = 70
STOP_SECONDS_TARGET: Final = 2.0
READY_SECONDS_TARGET: Final = 3.0

#: The bytes of a body in the queue that a stop and a start meet.
BODY_BYTES: Final = 100

Start = Callable[[], contextlib.AbstractContextManager[sides.Side]]


def resident_megabytes() -> float:
    """Return the resident memory of all that this process has started."""
    children = psutil.Process().children(recursive=True)
    return sum(child.memory_info().rss for child in children) / 1e6


def measure(start: Start) -> dict[str, float]:
    """Return the figures of one cold start."""
    began = time.monotonic()
    with start() as side:
        ready = time.monotonic() - began
        sides.first_confirm(side.port)
        confirmed = time.monotonic() - began
        return {"ready_s": ready, "confirm_s": confirmed, "rss_mb": resident_megabytes()}


def measure_queued(directory: Path, messages: int) -> dict[str, float]:
    """Return what a kill, a stop and the starts after them take with that many in one queue."""
    found: dict[str, float] = {}
    with BrokerProcess(directory) as broker:
        backlog.fill(sides.Side("Leveret", broker.port), messages, BODY_BYTES)
        broker.kill()
        found["killed_ready_s"] = _start(broker)
        found["rss_mb"] = backlog.resident(broker.pid) / 1e6
        began = time.monotonic()
        found["exit_code"] = broker.terminate()
        found["stop_s"] = time.monotonic() - began
        found["stopped_ready_s"] = _start(broker)
        backlog.drain(sides.Side("Leveret", broker.port), messages)
    return found


def _start(broker: BrokerProcess) -> float:
    """Start the broker; return the seconds until a message was confirmed."""
    began = time.monotonic()
    broker.start()
    sides.first_confirm(broker.port)
    return time.monotonic() - began


def print_queued(found: dict[str, float], messages: int) -> None:
    """Print the figures of `measure_queued`."""
    print(
        f"with {messages:,} messages in a queue: killed and confirming again in "
        f"{found['killed_ready_s']:.2f} s (at most {READY_SECONDS_TARGET:.0f}), "
        f"stopped in {found['stop_s']:.2f} s (at most {STOP_SECONDS_TARGET:.0f}) with exit code "
        f"{found['exit_code']:.0f}, confirming again in {found['stopped_ready_s']:.2f} s; "
        f"resident {found['rss_mb']:.0f} MB"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queued", type=int, default=1_000_000, help="messages; 0: leave it out")
    parser.add_argument("--rabbitmq", action="store_true", help="measure RabbitMQ too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    directory = Path(tempfile.gettempdir())
    every, _ = sides.cores("all")
    starts: dict[str, Start] = {}
    if sides.has_broker(sys.executable):
        name = sides.version(sys.executable)
        starts[name] = lambda: sides.leveret(sys.executable, name, directory, every)
    if options.rabbitmq and rabbitmq.installed():
        starts["RabbitMQ"] = lambda: sides.rabbit(directory, every)
    rounds = {
        name: [measure(start) for _ in range(options.rounds)] for name, start in starts.items()
    }
    figures = {
        name: {key: statistics.median(one[key] for one in values) for key in values[0]}
        for name, values in rounds.items()
    }
    queued: dict[str, float] = {}
    if options.queued:
        sides.build_generator()
        with tempfile.TemporaryDirectory(prefix="bench-start-") as data:
            queued = measure_queued(Path(data), options.queued)
    if options.json:
        print(json.dumps({"median": figures, "rounds": rounds, "queued": queued}, indent=2))
        return 0
    for name, one in figures.items():
        print(
            f"{name}: ready {one['ready_s']:.2f} s, first confirm {one['confirm_s']:.2f} s "
            f"(at most {SECONDS_TARGET}), "
            f"resident {one['rss_mb']:.0f} MB (at most {MEGABYTES_TARGET})"
        )
    if queued:
        print_queued(queued, options.queued)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
