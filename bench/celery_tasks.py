"""How fast Celery publishes and runs tasks on Leveret and on Debian's RabbitMQ.

    .venv/bin/python bench/celery_tasks.py [--tasks 5000] [--rounds 3] [--json]

A task does nothing.  All of them are published first, persistent, by one process; then a worker
of one process (`--pool=solo`, prefetch 64) is started, and the figure is from the start of its
first task to that of its last.  Celery's own work is most of both figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import rabbitmq
import sides
from celery import Celery

URI: Final = "BENCH_CELERY_URI"
#: Where the worker writes when its tasks began: one line for each of the two that count.
TIMES: Final = "BENCH_CELERY_TIMES"

#: A round that takes longer has gone wrong.
SECONDS_MAX: Final = 300.0

app = Celery("bench", broker=os.environ.get(URI))
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64)


@app.task(name="bench.nothing")  # type: ignore[untyped-decorator]
def nothing(count: bool) -> None:
    """Do nothing; the first and the last task write down when they ran."""
    if count:
        with Path(os.environ[TIMES]).open("a") as times:
            times.write(f"{time.monotonic()}\n")


def measure(side: sides.Side, tasks: int, directory: Path) -> dict[str, float]:
    """Return the tasks per second of one round, published and run."""
    uri = f"amqp://guest:guest@127.0.0.1:{side.port}//"
    times = directory / "times"
    times.unlink(missing_ok=True)
    # A queue for each round: what a killed worker had not acked is no part of the next one.
    queue = f"bench-celery-{time.monotonic_ns()}"
    with app.connection_for_write(uri) as connection, connection.Producer() as producer:
        began = time.monotonic()
        for number in range(tasks):
            nothing.apply_async((number in {0, tasks - 1},), producer=producer, queue=queue)
        published = time.monotonic() - began
    with worker(uri, queue, times) as process:
        end = time.monotonic() + SECONDS_MAX
        while len(seen := times.read_text().split() if times.exists() else []) < 2:
            if time.monotonic() > end or process.poll() is not None:
                raise SystemExit(f"{side.name}: the worker did not run its tasks")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
    first, last = map(float, seen)
    return {"published": tasks / published, "run": tasks / (last - first)}


@contextlib.contextmanager
def worker(uri: str, queue: str, times: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run Celery's worker for these tasks."""
    options = ["--pool=solo", "--without-mingle", "--without-gossip", "--loglevel=ERROR"]
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "-Q", queue, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=sides.BENCH,
        env=os.environ | {URI: uri, TIMES: str(times)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    every, _ = sides.cores("all")
    rounds: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as running:
        directory = Path(name)
        ours = sides.version(sys.executable)
        started = [running.enter_context(sides.leveret(sys.executable, ours, directory, every))]
        if rabbitmq.installed():
            started.append(running.enter_context(sides.rabbit(directory, every)))
        for _ in range(options.rounds):
            for side in started:
                rounds.setdefault(side.name, []).append(measure(side, options.tasks, directory))
    medians = {
        name: {key: statistics.median(one[key] for one in values) for key in values[0]}
        for name, values in rounds.items()
    }
    if options.json:
        print(json.dumps({"median": medians, "rounds": rounds}, indent=2))
        return 0
    for name, figures in medians.items():
        print(f"{name}: {figures['published']:.0f} tasks/s published, {figures['run']:.0f} run")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
