"""A deep queue: memory, disk, restarts and order with ten million messages in one queue.

    .venv/bin/python bench/deep.py [--messages 10000000] [--size 100] [--json]

Persistent messages go to one durable queue, each confirmed after its sync.  Then the broker is
killed and started, stopped and started, and the queue is drained in order with acks.  Memory is the
resident set of the broker's process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import backlog
import sides

from support.brokers.broker_process import BrokerProcess


@dataclass(frozen=True)
class Figure:
    """A figure in the report, and what is asked of it."""

    name: str
    title: str
    unit: str
    at_most: float = 0.0
    at_least: float = 0.0

    def line(self, value: float) -> str:
        """Return the figure as a line of text."""
        wanted = f" (at most {self.at_most:,.0f})" if self.at_most else ""
        wanted = f" (at least {self.at_least:,.0f})" if self.at_least else wanted
        digits = 2 if self.unit == "s" else 0
        return f"{self.title}: {value:,.{digits}f} {self.unit}{wanted}"


FIGURES: Final = [
    Figure("published", "published and confirmed", "msg/s"),
    Figure("growth", "memory grown by", "MB", at_most=50),
    Figure("peak_growth", "and at most, while it was filled, by", "MB"),
    Figure("disk", "on disk", "MB"),
    Figure("killed", "killed and ready again", "s", at_most=15),
    Figure("killed_growth", "memory above that of the empty broker then", "MB", at_most=50),
    Figure("stopped", "SIGTERM to the end of the process", "s", at_most=2),
    Figure("started", "started after that", "s", at_most=15),
    Figure("started_growth", "memory above that of the empty broker then", "MB", at_most=50),
    Figure("drained", "drained in order", "msg/s", at_least=300_000),
    Figure("drain_peak", "memory meanwhile at most, above that of the empty broker", "MB"),
    Figure("disk_after", "on disk when drained", "MB"),
]


def measure(directory: Path, messages: int, size: int) -> dict[str, float]:
    """Return the figures of one run on an empty data directory, by name."""
    found: dict[str, float] = {}
    with BrokerProcess(directory) as broker:
        empty = backlog.resident(broker.pid)

        def growth(bytes_held: int) -> float:
            return (bytes_held - empty) / 1e6

        backlog.forget_peak(broker.pid)
        found["published"] = backlog.fill(_side(broker), messages, size)
        found["growth"] = growth(backlog.resident(broker.pid))
        found["peak_growth"] = growth(backlog.peak(broker.pid))
        found["disk"] = backlog.disk_bytes(directory) / 1e6
        broker.kill()
        found["killed"] = _seconds(broker)
        found["killed_growth"] = growth(backlog.resident(broker.pid))
        began = time.monotonic()
        code = broker.terminate()
        found["stopped"] = time.monotonic() - began
        if code != 0:
            raise RuntimeError(f"the broker stopped with exit code {code}\n{broker.output}")
        found["started"] = _seconds(broker)
        found["started_growth"] = growth(backlog.resident(broker.pid))
        backlog.forget_peak(broker.pid)
        found["drained"] = backlog.drain(_side(broker), messages)
        found["drain_peak"] = growth(backlog.peak(broker.pid))
        found["disk_after"] = backlog.disk_bytes(directory) / 1e6
    return found


def _side(broker: BrokerProcess) -> sides.Side:
    return sides.Side("Leveret", broker.port)


def _seconds(broker: BrokerProcess) -> float:
    """Start the broker; return the seconds until it is ready."""
    began = time.monotonic()
    broker.start()
    return time.monotonic() - began


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sides.build_generator()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-deep-", dir=options.dir) as directory:
        found = measure(Path(directory), options.messages, options.size)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(f"{sides.version(sys.executable)}, load {load:.2f} before")
    print(f"{options.messages:,} messages of {options.size} bytes in one durable queue")
    print("\n".join(figure.line(found[figure.name]) for figure in FIGURES))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
