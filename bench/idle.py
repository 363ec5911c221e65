"""What idle connections cost: ten thousand with a channel each, from two client processes.

    .venv/bin/python bench/idle.py [--connections 10000] [--seconds 60] [--json]

All are opened as fast as both clients can, with a heartbeat of 60 s, then nobody does anything but
send heartbeats.  Memory is the growth of the broker's resident set per connection, the processor
time that of the broker's process while all are idle.  Each connection needs a file descriptor at
both ends (`ulimit -n`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Final

import psutil
import sides

from support.brokers.broker_process import BrokerProcess
from support.wire import raw

KILOBYTES_TARGET: Final = 40.0
SECONDS_TARGET: Final = 60.0
PROCESSOR_PERCENT_TARGET: Final = 10.0

CLIENTS: Final = 2
HEARTBEAT_SECONDS: Final = 60
#: Descriptors that the broker and a client need beside connections.
DESCRIPTORS_BESIDE: Final = 200


def stay(port: int, count: int, pipe: Pipe) -> None:
    """Open connections, say so, and send heartbeats until told to end; say how many are left."""
    login = raw.Login(heartbeat=HEARTBEAT_SECONDS)
    open_ones = []
    for _ in range(count):
        connection = raw.Connection("127.0.0.1", port)
        connection.handshake(login).open_channel(1)
        open_ones.append(connection)
    pipe.send(len(open_ones))
    while not pipe.poll(HEARTBEAT_SECONDS / 2):
        for connection in open_ones:
            connection.send(raw.frame(raw.HEARTBEAT, 0, b""))
    pipe.recv()
    # Who opens one more channel is still served.
    pipe.send(sum(connection.open_channel(2) == 2 for connection in open_ones))
    for connection in open_ones:
        connection.socket.close()


def measure(directory: Path, connections: int, seconds: float) -> dict[str, float]:
    """Return the figures of one run."""
    # Not by fork: the broker's output is read in a thread.
    context = multiprocessing.get_context("spawn")
    with BrokerProcess(directory) as broker:
        sides.first_confirm(broker.port)
        process = psutil.Process(broker.pid)
        before, descriptors = process.memory_info().rss, process.num_fds()
        pipes, clients = [], []
        began = time.monotonic()
        for _ in range(CLIENTS):
            ours, theirs = context.Pipe()
            arguments = (broker.port, connections // CLIENTS, theirs)
            clients.append(context.Process(target=stay, args=arguments, daemon=True))
            clients[-1].start()
            pipes.append(ours)
        opened = sum(int(pipe.recv()) for pipe in pipes)
        found = {"connections": float(opened), "up_seconds": time.monotonic() - began}
        found["kilobytes_each"] = (process.memory_info().rss - before) / opened / 1000
        used, began = broker.processor_seconds, time.monotonic()
        time.sleep(seconds)
        found["processor_percent"] = (
            100 * (broker.processor_seconds - used) / (time.monotonic() - began)
        )
        found["kilobytes_each_later"] = (process.memory_info().rss - before) / opened / 1000
        for pipe in pipes:
            pipe.send("end")
        found["still_served"] = float(sum(int(pipe.recv()) for pipe in pipes))
        for client in clients:
            client.join()
        began = time.monotonic()
        while process.num_fds() > descriptors and time.monotonic() - began < SECONDS_TARGET:
            time.sleep(0.05)
        found["descriptors_left"] = float(max(0, process.num_fds() - descriptors))
        found["megabytes_left"] = (process.memory_info().rss - before) / 1e6
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long they are idle")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = options.connections + DESCRIPTORS_BESIDE
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            parser.error(f"{needed:,} descriptors are needed, and `ulimit -Hn` is {hard:,}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    with tempfile.TemporaryDirectory(prefix="bench-idle-") as directory:
        found = measure(Path(directory), options.connections, options.seconds)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(sides.version(sys.executable))
    print(
        f"{found['connections']:,.0f} connections with a channel each: up in "
        f"{found['up_seconds']:.1f} s (at most {SECONDS_TARGET:.0f}), "
        f"{found['kilobytes_each']:.1f} KB each, {found['kilobytes_each_later']:.1f} KB after "
        f"{options.seconds:.0f} s (at most {KILOBYTES_TARGET:.0f})\n"
        f"idle: {found['processor_percent']:.1f} % of a core (at most "
        f"{PROCESSOR_PERCENT_TARGET:.0f}); {found['still_served']:,.0f} still served; when all "
        f"are gone {found['descriptors_left']:.0f} descriptors more than before, "
        f"{found['megabytes_left']:.0f} MB more"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
