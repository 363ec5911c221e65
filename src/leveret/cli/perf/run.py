"""Run a load: serve all its sockets in one loop, report rates every second, and return totals."""

from __future__ import annotations

import contextlib
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from leveret.cli.perf.link import PerfConnection
from leveret.cli.perf.plan import LoadPlan
from leveret.cli.perf.sides import ConsumingSide, PublishingSide, Side
from leveret.wire.content.scan import Latencies
from leveret.wire.methods.queue import (
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)

REPORT_SECONDS: Final = 1.0

#: The interval at which a side that waits for its rate is checked.
_RATE_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True)
class LoadTotals:
    """The counts of a load after `seconds`."""

    seconds: float = 0.0
    published: int = 0
    confirmed: int = 0
    nacked: int = 0
    returned: int = 0
    delivered: int = 0
    delivered_bytes: int = 0


@dataclass(slots=True)
class Result:
    """The result of a load."""

    totals: LoadTotals
    latencies: Latencies | None
    server_properties: dict[str, object] = field(default_factory=dict)


Report = Callable[[LoadTotals, LoadTotals], None]


class Load:
    """One run of a plan."""

    def __init__(self, plan: LoadPlan, report: Report) -> None:
        self._plan = plan
        self._report = report
        self._latencies = Latencies() if plan.latency else None
        self._selector = selectors.DefaultSelector()
        self._events: dict[Side, int] = {}
        self._stopped = False
        self._started = 0.0
        self.producers: list[PublishingSide] = []
        self.consumers: list[ConsumingSide] = []

    def run(self) -> Result:
        """Declare the queue, and run until the end of the plan or SIGINT.  Raises: Failure."""
        control = PerfConnection(self._plan.parameters)
        with contextlib.closing(control.sock):
            self._declare(control)
            try:
                self._open()
                with self._stop_on_interrupt():
                    self._loop()
                totals = self._totals()
                self._finish()
            finally:
                for side in (*self.producers, *self.consumers):
                    side.sock.close()
                if not self._plan.predeclared:
                    control.call(QueueDelete(queue=self._plan.queue), QueueDeleteOk)
                control.close()
        return Result(totals, self._latencies, control.server_properties)

    def _declare(self, control: PerfConnection) -> None:
        """Declare the queue, or check that it exists."""
        declare = QueueDeclare(
            queue=self._plan.queue,
            passive=self._plan.predeclared,
            durable=True,
            arguments=self._plan.arguments,
        )
        control.call(declare, QueueDeclareOk)

    def _open(self) -> None:
        """Connect all sides, then start the clock and the consumers."""
        plan = self._plan
        for _ in range(plan.consumers):
            self.consumers.append(
                ConsumingSide(PerfConnection(plan.parameters), plan, self._latencies)
            )
        for _ in range(plan.producers):
            self.producers.append(PublishingSide(PerfConnection(plan.parameters), plan))
        self._started = time.monotonic()
        for side in (*self.consumers, *self.producers):
            side.start(self._started)
            self._events[side] = 0

    @contextmanager
    def _stop_on_interrupt(self) -> Iterator[None]:
        """Make SIGINT end the run normally, so that its counts are reported."""
        before: Any = signal.signal(signal.SIGINT, lambda *_: self._stop())
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _stop(self) -> None:
        self._stopped = True

    def _loop(self) -> None:
        """Serve the sockets until the plan is done or its time is over."""
        last = LoadTotals()
        while not self._stopped and not self._done():
            self._turn()
            seconds = time.monotonic() - self._started
            if self._plan.seconds and seconds >= self._plan.seconds:
                return
            if seconds - last.seconds >= REPORT_SECONDS:
                totals = self._totals()
                self._report(last, totals)
                last = totals

    def _turn(self) -> None:
        """Serve all ready sockets; wait at most 0.1 s for one."""
        timeout = 0.1
        for side in self._events:
            if self._register(side) and side.waits_for_its_rate:
                timeout = _RATE_SECONDS
        for key, events in self._selector.select(timeout):
            side = key.data
            if events & selectors.EVENT_READ:
                side.read()
            if events & selectors.EVENT_WRITE:
                side.write()

    def _register(self, side: Side) -> bool:
        """Register the events that a side needs; return whether it cannot read or write now."""
        wanted = selectors.EVENT_READ if side.wants_to_read else 0
        if side.wants_to_write:
            wanted |= selectors.EVENT_WRITE
        current = self._events[side]
        if wanted != current:
            if not wanted:
                self._selector.unregister(side.sock)
            elif current:
                self._selector.modify(side.sock, wanted, side)
            else:
                self._selector.register(side.sock, wanted, side)
            self._events[side] = wanted
        return wanted != selectors.EVENT_READ | selectors.EVENT_WRITE

    def _done(self) -> bool:
        """Return whether every limited side has reached its limit, and at least one is limited."""
        plan = self._plan
        if plan.producer_messages and not all(side.done for side in self.producers):
            return False
        if plan.consumer_messages:
            return all(side.done for side in self.consumers)
        if not plan.producer_messages:
            return False
        published = sum(side.published for side in self.producers)
        delivered = sum(side.delivered for side in self.consumers)
        returned = sum(int(side.scanner.returned) for side in self.producers)
        return not self.consumers or delivered + returned >= published

    def _totals(self) -> LoadTotals:
        """Return the current totals."""
        settled = sum(side.scanner.settled for side in self.producers)
        nacked = sum(int(side.scanner.nacked) for side in self.producers)
        return LoadTotals(
            seconds=time.monotonic() - self._started,
            published=sum(side.published for side in self.producers),
            confirmed=settled - nacked,
            nacked=nacked,
            returned=sum(int(side.scanner.returned) for side in self.producers),
            delivered=sum(side.delivered for side in self.consumers),
            delivered_bytes=sum(int(side.scanner.delivered_bytes) for side in self.consumers),
        )

    def _finish(self) -> None:
        """Close all connections gracefully; consumers, which ack their last deliveries, first."""
        for side in (*self.consumers, *self.producers):
            if self._events.pop(side):
                self._selector.unregister(side.sock)
            side.finish()
        self._selector.close()
