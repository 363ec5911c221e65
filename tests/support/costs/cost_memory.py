"""Checks that a broker's memory account covers the memory that a world takes."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Final

import leveret
from support.costs.cost_gauge import Gauge
from support.costs.cost_requests import one_request
from support.costs.cost_worlds import World

#: The account may be smaller than the measured memory by this factor, and by as many bytes, for
#: routes, caches and the interpreter itself.
FACTOR: Final = 3
FREE_BYTES: Final = 1 << 20

#: The requests after building, between two measurements.
REQUESTS: Final = 40
LOOKS: Final = 3

_HERE: Final = Path(__file__).parents[1]
_PACKAGE: Final = Path(leveret.__file__).parent

#: Files with allocations not caused by clients: the tests' own, and the files in memory.
_OTHERS: Final = {str(path) for path in (*_HERE.rglob("*.py"), *(_PACKAGE / "store").rglob("*.py"))}


def unbooked(seed: int, size: int, parts: list[str] | None = None) -> list[str]:
    """Build a world and make requests; report where it took far more memory than was booked."""
    gauge = Gauge(counts_lines=False)
    found: list[str] = []
    world = World(seed, size, gauge)
    gc.collect()
    tracemalloc.start()
    try:
        booked, measured = _booked(world), _measured()
        for what in [*(parts or world.some_parts()), *["requests"] * LOOKS]:
            if what == "requests":
                for _ in range(REQUESTS):
                    one_request(world)
            else:
                world.build(what)
            world.node.sync()
            world.node.tick()
            grown, account = _measured() - measured, _booked(world) - booked
            if grown > FACTOR * max(account, 0) + FREE_BYTES:
                found.append(f"after {what}: {grown:,} bytes grew, and {account:,} were booked")
    finally:
        tracemalloc.stop()
        world.close()
    return found


def _booked(world: World) -> int:
    broker = world.node.broker
    return int(broker.message_bytes() + broker.core.accounts.total())


def _measured() -> int:
    gc.collect()
    files = tracemalloc.take_snapshot().statistics("filename")
    return sum(file.size for file in files if file.traceback[0].filename not in _OTHERS)
