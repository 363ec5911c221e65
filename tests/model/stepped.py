"""A broker whose long operations stop at each of their yields, and what it holds as plain facts.

While a test watches, `SteppedNode` calls it at each stop: between two turns, when a long operation
has done no more than what stands between two of its yields.  The test may look at the state there,
take the disk as a power cut would leave it, or have somebody else change what is worked on.

`facts` tells all that a restart must bring back, as a set: so what a crash in the middle leaves can
be compared with what was there before and what would have been there after.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import GeneratorType
from typing import Any

from leveret.broker.ownership import key_of
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.scheduler.task import Task
from leveret.broker.sinks.area import area_of
from leveret.broker.stream.stream import Stream
from leveret.store.disks.recording import RecordingDisk
from support.hostile.hostile_node import durable, exported
from support.node.core import Node, held
from support.node.delayed import ids

#: The slice that ends at the first yield.
SHORTEST = 1


class SteppedNode(Node):
    """A broker that tells who watches of each stop of its long operations."""

    def __init__(self, **settings: Any) -> None:
        self.watcher: Callable[[], None] | None = None
        #: The operations that have stopped while they were watched: their names, and these with
        #: their modules.
        self.seen: set[str] = set()
        #: What the core did between two stops, in steps: in its turn, and between two turns.
        self.costs: list[int] = []
        self._steps = 0
        super().__init__(**settings)

    @contextlib.contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Have operations stop at each yield, and call `watcher` there."""
        whole = self.core.scheduler.slice_cost
        self.core.scheduler.slice_cost = SHORTEST
        self.watcher = watcher
        self.costs.clear()
        self._steps = int(self.core.scheduler.spent)
        try:
            yield
        finally:
            self.core.scheduler.slice_cost = whole
            self.watcher = None

    def settle(self) -> None:
        """Let the core have its turn, after a stop."""
        watcher = self.watcher
        if watcher is not None and self.core.scheduler.tasks:
            for work in self.core.scheduler.tasks:
                self.seen.update(names_of(work))
            # What the watcher does goes on without stops.
            self.watcher = None
            watcher()
            self.watcher = watcher
        self._spent()
        super().settle()
        self._spent()

    def _spent(self) -> None:
        """Note what was done since the last call."""
        steps = int(self.core.scheduler.spent)
        self.costs.append(steps - self._steps)
        self._steps = steps


def names_of(work: object) -> Iterator[str]:
    """Yield the names of the functions that a task runs, one in the other, and with their modules.

    Of another operation, they are those of its class.
    """
    operation = work.operation if isinstance(work, Task) else work
    while isinstance(operation, GeneratorType):
        path = Path(operation.gi_code.co_filename).with_suffix("")
        name = operation.gi_code.co_name
        yield name
        if "leveret" in path.parts:
            yield ".".join([*path.parts[path.parts.index("leveret") :], name])
        operation = operation.gi_yieldfrom
    if operation is not None:
        # Compiled, each generator is of a type of its own: `purge_ClassicQueue_gen`.
        kind = type(operation)
        name = re.sub(r"(_{1,2}[A-Z]\w*)?_gen$", "", kind.__name__)
        yield name
        yield f"{kind.__module__}.{name}"


def after_power_cut(node: Node) -> Node:
    """Return the broker that starts from the disk as it is, once it rests."""
    again = Node(
        RecordingDisk(node.image()), clock=node.clock, window_bytes=node.core.memory.window_bytes
    )
    again.sync()
    return again


# -- facts -----------------------------------------------------------------------------------------


def facts(node: Node) -> set[tuple[Any, ...]]:
    """Return what a restart must bring back; a message that is there twice is a fault."""
    found: Counter[tuple[Any, ...]] = Counter()
    for section, rows in durable(exported(node)).items():
        found.update((section, row) for row in rows)
    for vhost in node.broker.vhosts.values():
        for place, sink in area_of(vhost).sinks.by_place.items():
            found["sink", vhost.name, *place, int(sink.batch), key_of(sink.owner)] += 1
        for exchange in vhost.exchanges.by_name.values():
            if exchange.durable and exchange.delayed is not None:
                found.update(
                    ("delayed", vhost.name, exchange.name, one) for one in ids(exchange.delayed)
                )
        for queue in vhost.queues.by_name.values():
            if queue.recorded:
                found.update(_of_queue(vhost.name, queue))
    twice = [fact for fact, count in found.items() if count > 1]
    assert twice == [], f"there twice: {twice[:3]}"
    return set(found)


def _of_queue(vhost: str, queue: Queue) -> Iterator[tuple[Any, ...]]:
    name = str(queue.name)
    publishers = queue.target.publishers
    if publishers is not None:
        for publisher, one in publishers.by_name.items():
            yield "publisher", vhost, name, publisher, int(one.number)
    if isinstance(queue, Stream):
        for reader, offset in queue.offsets.stored.items():
            yield "offset", vhost, name, reader, int(offset)
        for offset in range(int(queue.first_offset), int(queue.next_offset)):
            yield "stream", vhost, name, offset
    elif isinstance(queue, WaitingQueue):
        for item in held(queue):
            yield "message", vhost, name, int(item.sequence), bytes(item.message.body)


def told(found: set[tuple[Any, ...]] | frozenset[tuple[Any, ...]]) -> str:
    """Return some facts for a failed test to show."""
    return json.dumps(sorted(map(repr, found))[:5], indent=1) + f" of {len(found)}"


# -- memory ----------------------------------------------------------------------------------------

#: The rooms whose objects are there as long as what they stand for.
ROOMS = ("leveret.broker.queue", "leveret.broker.consumers", "leveret.broker.delayed",
         "leveret.broker.stream", "leveret.broker.super_streams", "leveret.broker.backlog",
         "leveret.broker.scheduler", "leveret.broker.sinks", "leveret.broker.publishers.publishers",
         "leveret.session")  # fmt: skip


#: What a broker and a vhost are made of, which the collector frees, also that of a trial's copy.
PARTS = (
    "Account", "Accounts", "Cancels", "ChunkReader", "MarkAccount", "Memory", "RetentionShare",
    "Scheduler", "Sinks", "StagingArea", "StagingIndex", "StreamCache", "Syncs", "Timers", "Turns",
    "UnackedShare", "WaitingLetters",
)  # fmt: skip


def alive() -> Counter[str]:
    """Count operations, queues, channels and connections, and all that belongs to them."""
    found: Counter[str] = Counter()
    for one in gc.get_objects():
        if isinstance(one, GeneratorType):
            if "/leveret/" in one.gi_code.co_filename:
                found[f"generator {one.gi_code.co_qualname}"] += 1
            continue
        if isinstance(one, Task) and one.over:
            # Who asks whether it is over keeps no more of it than that.
            continue
        kind = type(one)
        if kind.__name__ in PARTS:
            continue
        module = str(kind.__module__)
        if module.startswith(ROOMS) or (
            module.startswith("leveret.") and kind.__name__.endswith("_gen")
        ):
            found[kind.__name__] += 1
    return found
