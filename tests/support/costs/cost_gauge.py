"""A broker in memory whose every call costs a counted amount, and is judged by it.

`GaugedNode` stands where `core.Node` does, and measures each call that a shell makes into the core:
a `receive`, a round (`settle`), a flush, the end of a sync, a page that was read.  Each is judged
by three counts:

- *steps*, which the core itself counts (`Scheduler.spent`): a call may take a slice and what one
  frame may take beyond it;
- *lines* of the broker's code that ran, where it is plain Python: a call that runs more lines than
  its steps stand for does work that nobody counts;
- *time*, where it is compiled.  It is the one count that other programs can change, so what it
  finds counts only when it is found again, by the time of the processor.

Lines and steps are the same in each run of one seed.
"""

from __future__ import annotations

import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import mypy_extensions

from leveret.broker.scheduler import scheduler
from leveret.broker.scheduler.costs import (
    ROUND,
    SHARE_MIN,
    SHARE_OF_INPUT,
    SHARE_OF_LATE_INPUT,
    SLICE,
)
from leveret.limits import (
    COPY_KEYS_MAX,
    FAN_OUT_COPIES,
    FLUSHES_PER_TURN,
    QUEUE_WINDOW_BYTES,
    ROUTING_LOOKS_MAX,
    TX_COST_MAX,
)
from leveret.store.disks.memory import MemoryDisk
from leveret.store.segments.segments import read_if_readable
from support.node.core import TURNS_MAX, Node, Peer
from support.wire.raw import CAPABILITIES

#: Files of which no lines are counted: what a shell would do, what is nothing when compiled, and
#: what serves HTTP, with the interpreter's own modules: these keep caches for the whole process.
_OURS: Final = {
    str(Path(__file__).parents[1] / name)
    for name in (
        "node/core.py", "costs/cost_gauge.py", "costs/cost_hare.py", "costs/cost_http.py",
        "wire/hare.py", "wire/raw_codec.py",
    )
} | {str(mypy_extensions.__file__)}  # fmt: skip
_OTHERS: Final = ("<frozen ", "/asyncio/", "/aiohttp/", "/multidict/", "/yarl/", "/propcache/")

#: Whether the broker's code is plain Python, whose lines can be counted.
PLAIN: Final = str(scheduler.__file__).endswith(".py")

#: What one frame may take beyond the slice in which it began: the routing of a message that matches
#: as much as it may (eight looks are a step), by as many keys as it may have, which are read, and
#: its first copies.  These are some 20 ms of compiled code.
FRAME_STEPS_MAX: Final = ROUTING_LOOKS_MAX // 8 + COPY_KEYS_MAX + FAN_OUT_COPIES

#: Steps of each kind of call.  A frame that is received may be the commit of a transaction.  A turn
#: gives turns to connections, delivers, goes on with long operations, and does what deadlines and
#: dead letters bring: what is left to the last three when the turn is long is a slice, and twice
#: the least share.  The last thing done in it may take as much as a frame, whose routing is the
#: most of it: a dead letter is routed as well.
STEPS_MAX: Final = {
    "receive": SLICE + max(FRAME_STEPS_MAX, TX_COST_MAX),
    "settle": ROUND + SLICE + 2 * SHARE_MIN + FRAME_STEPS_MAX,
    # Many connections wait for one sync, and parse on with what the round has left.
    "sync": SHARE_OF_INPUT + SHARE_OF_LATE_INPUT + FRAME_STEPS_MAX,
}

#: Lines that a step stands for at most, and those of a call that counts none: a frame with all its
#: checks.  Routing has the most lines in a step: eight bindings of a fanout, with 24 lines each,
#: that lead to queues which have the message already, in 0.25 µs of compiled code; and patterns of
#: policies, eight places of one that are compared with a character each, in less than 1 µs.
LINES_PER_STEP: Final = 200
LINES_FREE: Final = 80_000

#: Lines of a route of the HTTP API beside its steps: it is not compiled, and a line takes some
#: 40 ns, so these are 10 ms.  Four hundred rows of queues with all their fields take 200,000.
HTTP_LINES_FREE: Final = 250_000

#: Time that a call of compiled code may take, in ms.
MILLISECONDS_MAX: Final = 50.0

#: What is read from a socket at once.
_READ_BYTES: Final = 65_536

#: Methods of which a client must know that they came: class and method id.
_CHANNEL_CLOSE: Final = (20, 40)
_CONNECTION_CLOSE: Final = (10, 50)
_WITH_TAG: Final = {(60, 60), (60, 71)}


@dataclass(frozen=True)
class Excess:
    """A call that cost more than it may."""

    what: str
    #: Which request it was.
    number: int
    call: str
    count: str
    found: float
    allowed: float

    @property
    def timed(self) -> bool:
        """Whether it was found by the clock, and counts only when it is found again."""
        return self.count == "ms"

    def __str__(self) -> str:
        found = f"{self.found:,.0f} {self.count} of {self.allowed:,.0f}"
        return f"{self.what} ({self.number}): {self.call} took {found}"


@dataclass
class Gauge:
    """Measures calls; `what` names the request that they belong to."""

    counts_lines: bool = PLAIN
    what: str = ""
    number: int = 0
    calls: int = 0
    #: The time of day, which costs nothing to ask for; the processor's is for what is tried again.
    clock: Callable[[], float] = time.perf_counter
    #: The most that any call took, by kind of call and count.
    most: Counter[str] = field(default_factory=Counter)
    excesses: list[Excess] = field(default_factory=list)

    @property
    def counted(self) -> list[Excess]:
        """What was found by counts alone, which are the same on however busy a machine."""
        return [one for one in self.excesses if not one.timed]

    def use_processor_time(self) -> None:
        """Measure what no other program changes; to ask for it takes 0.2 ms on some machines."""
        self.clock = time.thread_time

    def measure(self, kind: str, core: Any, call: Callable[[], None]) -> None:
        """Make a call, and judge it."""
        steps = int(core.scheduler.spent)
        begun = self.clock()
        lines = _lines_of(call) if self.counts_lines else _no_lines_of(call)
        spent = (self.clock() - begun) * 1000
        self._judge(kind, int(core.scheduler.spent) - steps, lines, spent)

    def _judge(self, kind: str, steps: int, lines: int, spent: float) -> None:
        self.calls += 1
        scale = kind if kind in STEPS_MAX else "receive"
        free = HTTP_LINES_FREE if kind == "http" else LINES_FREE
        lines_max = free + LINES_PER_STEP * steps
        judged: list[tuple[str, float, float]] = [
            ("steps", steps, STEPS_MAX[scale]),
            ("lines", lines, lines_max),
        ]
        if not PLAIN:
            judged.append(("ms", spent, MILLISECONDS_MAX))
        for count, found, allowed in judged:
            self.most[f"{kind} {count}"] = max(self.most[f"{kind} {count}"], int(found))
            if found > allowed:
                self.excesses.append(Excess(self.what, self.number, kind, count, found, allowed))

    @contextmanager
    def unmeasured(self) -> Iterator[None]:
        """Count no lines meanwhile: what is built for later requests."""
        counted, self.counts_lines = self.counts_lines, False
        yield
        self.counts_lines = counted


#: Whether lines of a file are counted, of those that were met.
_COUNTED: Final[dict[str, bool]] = {}


def _lines_of(call: Callable[[], None]) -> int:
    """Make a call; return how many lines of the broker's code ran.

    This runs for each line: a count of the function's own takes half the time of an attribute, and
    what returns None is called for the next line too.
    """
    lines = 0
    known = _COUNTED

    def ran(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal lines
        lines += 1

    def called(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        counted = known.get(name)
        if counted is None:
            counted = known[name] = name not in _OURS and not any(map(name.__contains__, _OTHERS))
        return ran if counted else None

    sys.settrace(called)
    try:
        call()
    finally:
        sys.settrace(None)
    return lines


def _no_lines_of(call: Callable[[], None]) -> int:
    call()
    return 0


class GaugedNode(Node):
    """A broker whose calls are measured."""

    def __init__(self, gauge: Gauge, *, memory_bytes_max: int = 1 << 40) -> None:
        self.gauge = gauge
        super().__init__(
            MemoryDisk(), memory_bytes_max=memory_bytes_max, window_bytes=QUEUE_WINDOW_BYTES
        )

    def measure(self, kind: str, call: Callable[[], None]) -> None:
        """Make a call into the core."""
        self.gauge.measure(kind, self.core, call)

    def run(self) -> None:
        """Do what the core noted, until it rests; nothing is synced."""
        core = self.core
        for _ in range(TURNS_MAX):
            self.measure("settle", self.broker.settle)
            for link in core.take_woken(FLUSHES_PER_TURN):
                if link in self.peers:
                    self.measure("flush", self.peers[link].flush)
            self.write_spilled()
            self.read_wanted()
            listed = core.scheduler.dispatchers or core.scheduler.woken or core.wanted
            if not (core.scheduler.resume or listed or self.spill.waits):
                return
        raise AssertionError("the core does not rest")

    def read_wanted(self) -> None:
        """Read what was asked for from the disk."""
        for one in self.core.take_wanted():
            data = read_if_readable(self.disk, one.ref)
            self.measure("read", partial(one.arrived, data))

    def end_sync(self) -> None:
        """Tell the core that the group under way is synced."""
        group, self.group = self.group, None
        assert group is not None
        self.now()
        self.measure("sync", lambda: self.core.syncs.synced(group.number))
        self.run()

    def tick(self, by_ms: int = 0) -> None:
        """Let time pass and look at the clock."""
        self.clock.advance(by_ms)
        now_ms = self.now()
        for peer in list(self.peers.values()):
            self.measure("tick", partial(peer.connection.tick, now_ms))
        self.measure("tick", self.broker.tick)
        self.run()


class QuickPeer(Peer):
    """A client that only notes what it must know: closed channels, and the last tag of each."""

    def __init__(self, node: GaugedNode) -> None:
        self.gauged = node
        self.bytes = b""
        self.tags: Counter[int] = Counter()
        self.closed: set[int] = set()
        self.over = False
        super().__init__(node, CAPABILITIES)

    def send(self, *parts: bytes) -> None:
        """Have the broker receive bytes, and do what follows from them."""
        data = b"".join(parts)
        now_ms = self.gauged.now()
        for start in range(0, len(data), _READ_BYTES):
            piece = data[start : start + _READ_BYTES]
            self.gauged.measure("receive", partial(self._receive, piece, now_ms))
            self.gauged.run()

    def _receive(self, piece: bytes, now_ms: int) -> None:
        if not self.over:
            self.connection.receive(piece, now_ms)

    def lose(self) -> None:
        """Lose the socket."""
        if self.node.peers.pop(self.connection, None) is not None:
            self.gauged.measure("lost", self.connection.lost)
            self.gauged.run()

    def flush(self) -> None:
        """Take what the session wrote, as a shell does for its transport."""
        connection = self.connection
        data = b"".join(connection.take_output())
        if self.reads:
            self._take_in(data)
        else:
            self.waiting += data
        connection.account.hold_output(len(self.waiting))
        if connection.finished:
            self.over = True
            self.node.peers.pop(connection, None)
            connection.lost()
        else:
            connection.flushed(self.full)

    def read_on(self) -> None:
        """Begin to read again."""
        self.reads = True
        data, self.waiting = self.waiting, b""
        self._take_in(data)
        self.gauged.measure("flushed", lambda: self.connection.flushed(False))
        self.gauged.run()

    def _take_in(self, data: bytes) -> None:
        data = self.bytes + data
        at, end = 0, len(data)
        while at + 7 <= end:
            kind, channel, size = struct.unpack_from(">BHI", data, at)
            if at + 8 + size > end:
                break
            if kind == 1:
                ids = struct.unpack_from(">HH", data, at + 7)
                if ids in _WITH_TAG:
                    self.tags[channel] += 1
                elif ids == _CHANNEL_CLOSE:
                    self.closed.add(channel)
                elif ids == _CONNECTION_CLOSE:
                    self.over = True
            at += 8 + size
        self.bytes = data[at:]
