"""What it costs the broker and the client that publishes are numbered.

    .venv/bin/python bench/numbered.py [--messages 200000] [--rounds 5] [--size 100]

A client publishes in confirmed windows of a thousand to a transient queue, plainly and, in turns,
with `Recovery(numbered=True)`.  Figures are medians: messages per second, and the processor time of
broker and client for each message, which the load of the machine changes less.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil
import sides
from client_ratios import blocking_publish

from leveret.client import Recovery, blocking


def measured(
    uri: str, broker: psutil.Process, count: int, body: bytes, numbered: bool
) -> tuple[float, float, float]:
    """Return messages per second, and microseconds of broker and client for each."""
    queue = "bench-numbered"
    with blocking.connect(uri) as connection, connection.channel() as channel:
        channel.queue_declare(queue, durable=False)
        before, mine = broker.cpu_times(), time.process_time()
        seconds = blocking_publish(uri, queue, count, body, recover=Recovery(numbered=numbered))
        client = time.process_time() - mine
        after = broker.cpu_times()
        channel.queue_delete(queue)
    theirs = after.user + after.system - before.user - before.system
    return count / seconds, 1e6 * theirs / count, 1e6 * client / count


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=100)
    options = parser.parse_args()
    body = b"x" * options.size
    broker_cpus, client_cpus = sides.cores("one")
    found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    version = sides.version(sys.executable)
    with (
        tempfile.TemporaryDirectory() as name,
        sides.leveret(sys.executable, version, Path(name), broker_cpus) as side,
        sides.placed(client_cpus),
    ):
        uri = f"amqp://guest:guest@127.0.0.1:{side.port}/%2F"
        broker = psutil.Process(side.pid)
        for _ in range(options.rounds):
            for numbered, figures in found.items():
                figures.append(measured(uri, broker, options.messages, body, numbered))
    print(f"{version}; {sides.machine()['processor']}; {options.size} B; {options.rounds} rounds")
    for numbered, figures in found.items():
        rate, theirs, mine = (statistics.median(column) for column in zip(*figures, strict=True))
        what = "numbered" if numbered else "plain"
        print(f"  {what:10}{rate:10,.0f} msg/s{theirs:8.2f} us broker{mine:8.2f} us client")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
