"""What it costs to be watched: the overview each second, metrics each 5 s, with 100,000 queues.

    .venv/bin/python bench/watched.py [--queues 100000] [--seconds 10] [--rounds 3] [--json]

The load runs alone and watched in turns, round by round.  Its rate (16 B, automatic acks) is to be
at most 3 % lower when watched, and the 99th percentile of 10,000 msg/s at most 1 ms higher.  A page
of the list of queues is to come within 100 ms, and all metrics within 300 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import many
import sides

import raw
from broker_process import BrokerProcess
from http_api import Api

OVERVIEW_SECONDS: Final = 1.0
#: Metrics are asked for with each so many-th overview.
OVERVIEWS_PER_SCRAPE: Final = 5

SLOWER_TARGET: Final = 0.03
P99_MS_TARGET: Final = 1.0
PAGE_MS_TARGET: Final = 100.0
SCRAPE_MS_TARGET: Final = 300.0

#: How often the page is asked for, when there is no load.
PAGES: Final = 20
PAGE: Final = "/api/queues?page=1&page_size=100"
#: The same, in the order of a figure, which is looked at for each queue.
SORTED_PAGE: Final = f"{PAGE}&sort=messages&sort_reverse=true"

RATE: Final = ("-P", "1", "-C", "1", "-s", "16")
LATENCY: Final = (*RATE, "-l", "-r", "10000")


def ask(api: Api, path: str) -> float:
    """Ask for a path; return how long the whole answer took, in ms."""
    began = time.perf_counter()
    api.request("GET", path)
    answer = api.getresponse()
    body = answer.read()
    assert answer.status == 200, (path, answer.status, body[:200])
    return (time.perf_counter() - began) * 1000


@contextlib.contextmanager
def watching(path: Path, times: dict[str, list[float]]) -> Iterator[None]:
    """Ask for overview and metrics until the end; note how long each took."""
    ended = threading.Event()

    def watch() -> None:
        api = Api(path)
        count = 0
        while not ended.wait(OVERVIEW_SECONDS):
            times["overview"].append(ask(api, "/api/overview"))
            if count % OVERVIEWS_PER_SCRAPE == 0:
                times["scrape"].append(ask(api, "/metrics"))
            count += 1
        api.close()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def quiet(path: Path) -> dict[str, list[float]]:
    """Return how long answers take that were not given before, without a load."""
    api = Api(path)
    # The first of all loads the framework, and counts nothing.
    ask(api, "/api/version")
    found = {
        "first_overview": [ask(api, "/api/overview")],
        "first_page": [ask(api, PAGE)],
        "sorted_page": [ask(api, SORTED_PAGE) for _ in range(PAGES)],
    }
    api.close()
    return found


def measure(directory: Path, queues: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Return rates and percentiles of each round, and how long answers took."""
    sides.build_generator()
    times: dict[str, list[float]] = {"overview": [], "page": [], "scrape": []}
    found: dict[str, list[float]] = {
        name: [] for name in ("rate", "rate_watched", "p99_us", "p99_watched_us")
    }
    everywhere, load = sides.cores("all")
    with BrokerProcess(directory) as broker:
        connection = raw.connect(broker.uri)
        connection.open_channel(1)
        many.declare_queues(connection, queues)
        connection.close()
        socket = broker.data_dir / "management.sock"
        times |= quiet(socket)
        side = sides.Side("Leveret", broker.port, broker.pid, socket)
        for number in range(rounds):
            for suffix in ("", "_watched"):
                watched = watching(socket, times) if suffix else contextlib.nullcontext()
                queue = f"watched-{number}{suffix}"
                with watched, sides.placed(everywhere):
                    rate = sides.generate(side, RATE, queue, seconds, load)
                    # In a queue of its own: what the load left behind has no time in it.
                    late = sides.generate(side, LATENCY, f"{queue}-late", seconds, load)
                found[f"rate{suffix}"].append(rate["delivered"])
                found[f"p99{suffix}_us"].append(late["p99"])
        api = Api(socket)
        times["page"] = [ask(api, PAGE) for _ in range(PAGES)]
        api.close()
    ratios = [w / a for w, a in zip(found["rate_watched"], found["rate"], strict=True)]
    later = [(w - a) / 1000 for w, a in zip(found["p99_watched_us"], found["p99_us"], strict=True)]
    return {
        **found,
        "ratios": ratios,
        "p99_later_ms": later,
        "answers_ms": {
            name: {"median": statistics.median(all_), "max": max(all_), "count": len(all_)}
            for name, all_ in times.items()
        },
    }


def main() -> int:
    """Measure, print, and return how many figures miss their targets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-watched-") as directory:
        found = measure(Path(directory), options.queues, options.seconds, options.rounds)
    ratio = statistics.median(found["ratios"])
    later = statistics.median(found["p99_later_ms"])
    answers = found["answers_ms"]
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(sides.version(sys.executable))
        print(" ".join(f"{name} {value}" for name, value in sides.machine().items()))
        rounds = " ".join(f"{one:.3f}" for one in found["ratios"])
        print(
            f"16 B, automatic acks, {options.queues:,} queues: "
            f"{statistics.median(found['rate']):,.0f} msg/s alone, "
            f"{statistics.median(found['rate_watched']):,.0f} watched; ratio of each round "
            f"{rounds}, median {ratio:.3f} (at least {1 - SLOWER_TARGET:.2f})"
        )
        print(
            f"p99 of 10,000 msg/s: {statistics.median(found['p99_us']) / 1000:.2f} ms alone, "
            f"{statistics.median(found['p99_watched_us']) / 1000:.2f} ms watched "
            f"({later:+.2f} ms; at most {P99_MS_TARGET:+.0f})"
        )
        for name, taken in answers.items():
            print(
                f"{name}: median {taken['median']:.1f} ms, longest of {taken['count']} "
                f"{taken['max']:.1f} ms"
            )
    missed = [
        ratio < 1 - SLOWER_TARGET,
        later > P99_MS_TARGET,
        answers["page"]["median"] > PAGE_MS_TARGET,
        answers["scrape"]["median"] > SCRAPE_MS_TARGET,
    ]
    return sum(missed)


if __name__ == "__main__":
    raise SystemExit(main())
