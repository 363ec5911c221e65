"""Large messages side by side: memory, what small ones wait meanwhile, and what is refused.

    .venv/bin/python bench/large.py [--megabytes 128] [--parallel 4] [--json]

Each of the parallel clients publishes one persistent message to a durable queue of its own, waits
for the confirm, gets the message and compares its SHA-256.  Meanwhile two more clients publish
small messages one at a time, transient and persistent ones; the figure is from publish to confirm.
The former tells whether the broker goes on with others, the latter waits for the disk too, which
writes the large bodies while they arrive.  Then a message one byte too large, and a body longer
than its header says, must be refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import struct
import sys
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import sides

from support.brokers.broker_process import BrokerProcess
from support.wire import raw

MEBIBYTE: Final = 1024 * 1024

#: Payload of a body frame: what the broker offers, without the frame's own bytes.
PIECE_BYTES: Final = 131_064

#: A large transfer on a busy machine may take this long.
SECONDS_MAX: Final = 120.0

#: Between two small messages.
PAUSE_SECONDS: Final = 0.002

SMALL_MS_TARGET: Final = 100.0
BODIES_TARGET: Final = 3.0


def carry(port: int, queue: str, size: int) -> dict[str, float]:
    """Publish a message of `size` bytes, wait for its confirm, get it and compare; in seconds."""
    with raw.Connection("127.0.0.1", port).handshake() as connection:
        connection.socket.settimeout(SECONDS_MAX)
        connection.open_channel(1)
        connection.declare(1, queue, durable=True)
        connection.call(1, "confirm.select")
        began = time.monotonic()
        sent = _send(connection, queue, size)
        assert connection.expect(1, "basic.ack").delivery_tag == 1
        confirmed = time.monotonic()
        connection.send(raw.method(1, "basic.get", queue=queue, no_ack=True))
        got = _receive(connection, size)
        done = time.monotonic()
        if got != sent:
            raise RuntimeError(f"the message of {queue} came back altered")
        connection.call(1, "queue.delete", queue=queue)
        connection.close()
    return {"confirmed": confirmed - began, "got": done - confirmed}


def _send(connection: raw.Connection, queue: str, size: int) -> bytes:
    """Publish `size` bytes in frames; return their digest."""
    block = os.urandom(PIECE_BYTES)
    digest = hashlib.sha256()
    connection.send(
        raw.method(1, "basic.publish", exchange="", routing_key=queue),
        raw.header(1, size, raw.properties(delivery_mode=2)),
    )
    for number, at in enumerate(range(0, size, PIECE_BYTES)):
        piece = (struct.pack(">Q", number) + block[8:])[: size - at]
        digest.update(piece)
        connection.send(raw.frame(raw.BODY, 1, piece))
    return digest.digest()


def _receive(connection: raw.Connection, size: int) -> bytes:
    """Read a get-ok with its content; return the body's digest."""
    digest = hashlib.sha256()
    if connection.next_frame().kind != raw.METHOD:
        raise RuntimeError("no get-ok came")
    connection.next_frame()
    left = size
    while left > 0:
        payload = connection.next_frame().payload
        digest.update(payload)
        left -= len(payload)
    return digest.digest()


def small_waits(
    port: int, carriers: list[Future[dict[str, float]]], delivery_mode: int
) -> list[float]:
    """Publish small messages one by one while `carriers` run; return ms to each confirm, sorted."""
    waits = []
    with raw.Connection("127.0.0.1", port).handshake() as connection:
        connection.socket.settimeout(SECONDS_MAX)
        connection.open_channel(1)
        connection.declare(1, "bench-small", durable=True)
        connection.call(1, "confirm.select")
        message = raw.publish(1, "", "bench-small", b"x" * 100, delivery_mode=delivery_mode)
        while not all(carrier.done() for carrier in carriers):
            began = time.monotonic()
            connection.send(message)
            connection.expect(1, "basic.ack")
            waits.append((time.monotonic() - began) * 1000)
            time.sleep(PAUSE_SECONDS)
    return sorted(waits)


def refusals(port: int, size_max: int) -> dict[str, float]:
    """Return the reply codes for a body that is too large, and for one longer than announced."""
    publish = raw.method(1, "basic.publish", exchange="", routing_key="bench-small")
    with raw.Connection("127.0.0.1", port).handshake() as connection:
        connection.open_channel(1)
        connection.send(publish, raw.header(1, size_max + 1))
        too_large = connection.expect(1, "channel.close").code
    with raw.Connection("127.0.0.1", port).handshake() as connection:
        connection.open_channel(1)
        connection.send(publish, raw.header(1, 10), raw.frame(raw.BODY, 1, b"x" * 20))
        too_long = connection.expect(0, "connection.close").code
    return {"too_large_code": too_large, "too_long_code": too_long}


def measure(directory: Path, size: int, parallel: int) -> dict[str, float]:
    """Return the figures of one run on an empty data directory."""
    settings = {"message_bytes_max": str(size)}
    # Not by fork: the broker's output is read in a thread.
    context = multiprocessing.get_context("spawn")
    with (
        BrokerProcess(directory, settings=settings) as broker,
        ProcessPoolExecutor(parallel, mp_context=context) as pool,
    ):
        empty = sides.resident(broker.pid)
        sides.forget_peak(broker.pid)
        carriers = [
            pool.submit(carry, broker.port, f"bench-large-{n}", size) for n in range(parallel)
        ]
        with ThreadPoolExecutor(1) as beside:
            persistent = beside.submit(small_waits, broker.port, carriers, 2)
            transient = small_waits(broker.port, carriers, 1)
        carried = [carrier.result() for carrier in carriers]
        found = {
            "confirmed_s": max(one["confirmed"] for one in carried),
            "got_s": max(one["got"] for one in carried),
            "peak_mb": (sides.peak(broker.pid) - empty) / 1e6,
            "bodies": (sides.peak(broker.pid) - empty) / size,
        }
        found |= _summary("transient", transient) | _summary("persistent", persistent.result())
        return found | refusals(broker.port, size)


def _summary(name: str, waits: list[float]) -> dict[str, float]:
    """Return the percentiles of sorted waits."""
    return {
        f"{name}_p50_ms": waits[len(waits) // 2],
        f"{name}_p99_ms": waits[int(len(waits) * 0.99)],
        f"{name}_count": len(waits),
    }


def _small(found: dict[str, float], name: str) -> str:
    """Return what small messages waited, as text."""
    return (
        f"small {name} messages meanwhile: {found[name + '_p50_ms']:.1f} ms (p50), "
        f"{found[name + '_p99_ms']:.1f} ms (p99 of {found[name + '_count']:.0f}; at most "
        f"{SMALL_MS_TARGET:.0f})"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=128, help="MiB of a body")
    parser.add_argument("--parallel", type=int, default=4, help="clients at once")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-large-", dir=options.dir) as directory:
        found = measure(Path(directory), options.megabytes * MEBIBYTE, options.parallel)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(sides.version(sys.executable))
    print(
        f"{options.parallel} messages of {options.megabytes} MiB at once: the last confirmed after "
        f"{found['confirmed_s']:.1f} s, got back whole within {found['got_s']:.1f} s; memory grew "
        f"by at most {found['peak_mb']:,.0f} MB, {found['bodies']:.1f} bodies (at most "
        f"{BODIES_TARGET:.0f})\n"
        f"{_small(found, 'transient')}; {_small(found, 'persistent')}\n"
        f"one byte too large: {found['too_large_code']:.0f}; longer than announced: "
        f"{found['too_long_code']:.0f}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
