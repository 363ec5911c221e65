"""How long a cold start takes to the first confirm, and what a broker without clients holds.

    .venv/bin/python bench/start.py [--rounds 5] [--rabbitmq] [--json]

From the start of the process until the confirm of a persistent message on a durable queue, which
is synced before: to be at most 0.7 s.  Every round has an empty data directory; the files of the
programs are in the page cache after the first one.  Memory is the resident set of the broker's
processes once it is ready and after that message: to be at most 70 MB.
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

import psutil
import rabbitmq
import sides

SECONDS_TARGET: Final = 0.7
MEGABYTES_TARGET: Final = 70

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


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
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
    if options.json:
        print(json.dumps({"median": figures, "rounds": rounds}, indent=2))
        return 0
    for name, one in figures.items():
        print(
            f"{name}: ready {one['ready_s']:.2f} s, first confirm {one['confirm_s']:.2f} s "
            f"(at most {SECONDS_TARGET}), "
            f"resident {one['rss_mb']:.0f} MB (at most {MEGABYTES_TARGET})"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
