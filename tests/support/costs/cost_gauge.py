"""A broker in memory that measures the cost of every call, and checks it against limits.

`GaugedNode` replaces `core.Node`, and measures each call that a shell makes into the core: a
`receive`, a round (`settle`), a flush, the end of a sync, a page that was read.  Each call is
checked by three measures:

- *steps*, which the core itself counts (`Scheduler.spent`): a call may take one slice, and one
  frame may exceed it;
- *lines* of the broker's code that ran, on the plain Python build: a call with more lines than its
  steps allow does work that is not counted;
- *time*, on the compiled build.  Only this measure depends on other programs, so an excess counts
  only if it is confirmed by processor time.

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
    QUEUE_WINDOW_BYTES,
    ROUTING_LOOKS_MAX,
    TX_COST_MAX,
)
from leveret.server.runner import FLUSHES_PER_TURN
from leveret.store.disks.memory import MemoryDisk
from leveret.store.segments.segments import read_if_readable
from support.node.core import TURNS_MAX, Node, Peer
from support.wire.raw import CAPABILITIES

#: Files with lines that are not counted: work of the shell, code that compiles to nothing, and the
#: HTTP server with the interpreter's own modules, which keep caches for the whole process.
_OURS: Final = {
    str(Path(__file__).parents[1] / name)
    for name in (
        "node/core.py", "costs/cost_gauge.py", "costs/cost_hare.py", "costs/cost_http.py",
        "wire/hare.py", "wire/raw_codec.py",
    )
} | {str(mypy_extensions.__file__)}  # fmt: skip
_OTHERS: Final = ("<frozen ", "/asyncio/", "/aiohttp/", "/multidict/", "/yarl/", "/propcache/")

#: Whether the broker's code is plain Python, so that lines can be counted.
PLAIN: Final = str(scheduler.__file__).endswith(".py")

#: The steps that one frame may take beyond the slice in which it began: routing a message with the
#: maximum of matches (eight comparisons are a step), reading the maximum of keys, and the first
#: copies.  This is about 20 ms of compiled code.
FRAME_STEPS_MAX: Final = ROUTING_LOOKS_MAX // 8 + COPY_KEYS_MAX + FAN_OUT_COPIES

#: The maximum steps of each kind of call.  A received frame may be the commit of a transaction.  A
#: round resumes connections, delivers, continues long operations, and handles timers and dead
#: letters: in a long round the last three get a slice and twice the least share.  The last item
#: may take as much as a frame, mostly for routing: a dead letter is routed too.
STEPS_MAX: Final = {
    "receive": SLICE + max(FRAME_STEPS_MAX, TX_COST_MAX),
    "settle": ROUND + SLICE + 2 * SHARE_MIN + FRAME_STEPS_MAX,
    # Many connections wait for one sync, and resume parsing within the rest of the round.
    "sync": SHARE_OF_INPUT + SHARE_OF_LATE_INPUT + FRAME_STEPS_MAX,
}

#: The maximum of lines per step, and of a call without steps: a frame with all its checks.  Routing
#: has the most lines per step: eight bindings of a fanout exchange, with 24 lines each, to queues
#: that already have the message, in 0.25 µs of compiled code; and patterns of policies, of which
#: eight places are compared with one character each, in less than 1 µs.
LINES_PER_STEP: Final = 200
LINES_FREE: Final = 80_000

#: The lines that a route of the HTTP API may take in addition to its steps.  It is not compiled,
#: and a line takes about 40 ns, so this is 10 ms.  400 queues with all fields take 200,000 lines.
HTTP_LINES_FREE: Final = 250_000

#: The maximum time of a call of compiled code, in ms.
MILLISECONDS_MAX: Final = 50.0

#: The bytes read from a socket at once.
_READ_BYTES: Final = 65_536

#: The methods that a client must notice: class and method id.
_CHANNEL_CLOSE: Final = (20, 40)
_CONNECTION_CLOSE: Final = (10, 50)
_WITH_TAG: Final = {(60, 60), (60, 71)}


@dataclass(frozen=True)
class Excess:
    """A call that exceeded a limit."""

    what: str
    #: The number of the request.
    number: int
    call: str
    count: str
    found: float
    allowed: float

    @property
    def timed(self) -> bool:
        """Whether it was found by the clock, and so must be confirmed."""
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
    #: Real time, which is cheap to read; processor time is used for confirmation.
    clock: Callable[[], float] = time.perf_counter
    #: The maximum of any call, by kind of call and measure.
    most: Counter[str] = field(default_factory=Counter)
    excesses: list[Excess] = field(default_factory=list)

    @property
    def counted(self) -> list[Excess]:
        """The excesses of steps and lines, which are the same however busy the machine is."""
        return [one for one in self.excesses if not one.timed]

    def use_processor_time(self) -> None:
        """Measure processor time, unaffected by other programs; reading it may take 0.2 ms."""
        self.clock = time.thread_time

    def measure(self, kind: str, core: Any, call: Callable[[], None]) -> None:
        """Make a call, and check its cost."""
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
        """Count no lines while a test builds the setting for later requests."""
        counted, self.counts_lines = self.counts_lines, False
        yield
        self.counts_lines = counted


#: Whether the lines of a file are counted, for the files seen so far.
_COUNTED: Final[dict[str, bool]] = {}


def _lines_of(call: Callable[[], None]) -> int:
    """Make a call; return the number of lines of the broker's code that ran.

    The trace function runs for each line: a local counter takes half the time of an attribute, and
    a function that returns None is called for the next line too.
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
    """A broker with measured calls."""

    def __init__(self, gauge: Gauge, *, memory_bytes_max: int = 1 << 40) -> None:
        self.gauge = gauge
        super().__init__(
            MemoryDisk(), memory_bytes_max=memory_bytes_max, window_bytes=QUEUE_WINDOW_BYTES
        )

    def measure(self, kind: str, call: Callable[[], None]) -> None:
        """Make a call into the core."""
        self.gauge.measure(kind, self.core, call)

    def run(self) -> None:
        """Run the core's effects until it is idle, without syncing."""
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
        """Do all requested reads from the disk."""
        for one in self.core.take_wanted():
            data = read_if_readable(self.disk, one.ref)
            self.measure("read", partial(one.arrived, data))

    def end_sync(self) -> None:
        """Tell the core that the current group is synced."""
        group, self.group = self.group, None
        assert group is not None
        self.now()
        self.measure("sync", lambda: self.core.syncs.synced(group.number))
        self.run()

    def tick(self, by_ms: int = 0) -> None:
        """Advance the time and tick."""
        self.clock.advance(by_ms)
        now_ms = self.now()
        for peer in list(self.peers.values()):
            self.measure("tick", partial(peer.connection.tick, now_ms))
        self.measure("tick", self.broker.tick)
        self.run()


class QuickPeer(Peer):
    """A client that records only the necessary: closed channels, and the last tag of each."""

    def __init__(self, node: GaugedNode) -> None:
        self.gauged = node
        self.bytes = b""
        self.tags: Counter[int] = Counter()
        self.closed: set[int] = set()
        self.over = False
        super().__init__(node, CAPABILITIES)

    def send(self, *parts: bytes) -> None:
        """Have the broker receive bytes, and run the core until it is idle."""
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
        """Take the session's output, as a shell does for its transport."""
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
