"""What many definitions cost: queues in memory and at a restart, bindings in time.

    .venv/bin/python bench/many.py [--queues 100000] [--bindings 100000] [--json]

Durable queues are declared without waiting for each reply, the broker is stopped and started again;
memory is the growth of the broker's resident set per queue: to be at most 6 KB, and the restart at
most 20 s.  Then bindings with keys of their own are declared on one durable topic exchange, to one
queue: at least 5,000 a second, each synced before the last reply.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil
import sides

from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.wire import raw

KILOBYTES_TARGET: Final = 6.0
RESTART_SECONDS_TARGET: Final = 20.0
ASKED_MS_TARGET: Final = 200.0
BINDINGS_TARGET: Final = 5000.0

#: Queues that are asked for one by one.
ASKED: Final = 100

#: Methods that go out before the broker is asked whether it is done with them.
BATCH: Final = 1000


def resident(broker: BrokerProcess) -> int:
    """Return the bytes that the broker's process holds."""
    return int(psutil.Process(broker.pid).memory_info().rss)


def declare_queues(connection: raw.Connection, count: int) -> None:
    """Declare durable queues `many-0` and so on."""
    for start in range(0, count, BATCH):
        names = [f"many-{n}" for n in range(start, min(start + BATCH, count))]
        fields = {"durable": True, "no_wait": True}
        connection.send(*[raw.method(1, "queue.declare", queue=name, **fields) for name in names])
        connection.declare(1, names[-1], durable=True)


def bind(connection: raw.Connection, count: int) -> float:
    """Bind a queue by that many keys to one topic exchange; return bindings per second."""
    exchange = {"exchange": "many", "type": "topic", "durable": True}
    connection.call(1, "exchange.declare", **exchange)
    connection.declare(1, "bound", durable=True)
    began = time.monotonic()
    for start in range(0, count, BATCH):
        keys = [f"key-{n}.*.#" for n in range(start, min(start + BATCH, count))]
        fields = {"queue": "bound", "exchange": "many", "no_wait": True}
        connection.send(*[raw.method(1, "queue.bind", routing_key=key, **fields) for key in keys])
        connection.call(1, "queue.bind", queue="bound", exchange="many", routing_key=keys[-1])
    return count / (time.monotonic() - began)


def ask(broker: BrokerProcess, queues: int) -> dict[str, float]:
    """Return how long HTTP takes for one of many queues (in ms), and for a list of all."""
    api = Api(broker.data_dir / "management.sock")
    # The first question loads the framework.
    api.answer("/api/overview")
    waits = []
    for number in range(ASKED):
        began = time.monotonic()
        api.answer(f"/api/queues/%2F/many-{number * queues // ASKED}")
        waits.append((time.monotonic() - began) * 1000)
    began = time.monotonic()
    _, rows, _ = api.answer("/api/queues")
    assert isinstance(rows, list)
    assert len(rows) == queues
    api.close()
    listed = time.monotonic() - began
    return {"asked_ms": sorted(waits)[ASKED // 2], "listed_seconds": listed}


def measure(directory: Path, queues: int, bindings: int) -> dict[str, float]:
    """Return the figures of one run on an empty data directory."""
    found: dict[str, float] = {}
    with BrokerProcess(directory) as broker:
        connection = raw.connect(broker.uri)
        connection.open_channel(1)
        before = resident(broker)
        began = time.monotonic()
        declare_queues(connection, queues)
        found["declares_per_second"] = queues / (time.monotonic() - began)
        found["kilobytes_per_queue"] = (resident(broker) - before) / queues / 1000
        connection.close()
        broker.kill()
        began = time.monotonic()
        broker.start()
        found["restart_seconds"] = time.monotonic() - began
        found["kilobytes_per_queue_restarted"] = (resident(broker) - before) / queues / 1000
        found |= ask(broker, queues)
        connection = raw.connect(broker.uri)
        connection.open_channel(1)
        found["bindings_per_second"] = bind(connection, bindings)
        connection.close()
        broker.kill()
        began = time.monotonic()
        broker.start()
        found["restart_with_bindings_seconds"] = time.monotonic() - began
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--bindings", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-many-") as directory:
        found = measure(Path(directory), options.queues, options.bindings)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    print(sides.version(sys.executable))
    print(
        f"{options.queues:,} durable queues: {found['declares_per_second']:,.0f} declares/s, "
        f"{found['kilobytes_per_queue']:.1f} KB each, after a restart "
        f"{found['kilobytes_per_queue_restarted']:.1f} KB (at most {KILOBYTES_TARGET:.0f})\n"
        f"killed and ready again in {found['restart_seconds']:.1f} s (at most "
        f"{RESTART_SECONDS_TARGET:.0f}); over HTTP one of them in {found['asked_ms']:.1f} ms "
        f"(median; at most {ASKED_MS_TARGET:.0f}), a list of all in "
        f"{found['listed_seconds']:.1f} s\n"
        f"{options.bindings:,} bindings on one topic exchange: "
        f"{found['bindings_per_second']:,.0f}/s (at least {BINDINGS_TARGET:,.0f}), and killed and "
        f"ready again in {found['restart_with_bindings_seconds']:.1f} s"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
