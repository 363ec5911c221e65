"""The server's functions that routes use: set the time, wait for syncs, hash passwords, and more.

The core has no clock and does no I/O.  Each caller sets the core's time first and runs the effects
afterwards, as the server does for each batch of input.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from leveret.broker.scheduler.costs import SLICE
from leveret.broker.scheduler.task import EndWaiter, Task
from leveret.errors import AmqpError
from leveret.management.connections.address import ListenAddress
from leveret.management.metrics.stream_queries import StreamQueries
from leveret.management.requests.slices import Slices, next_slice
from leveret.management.sampling.recent_log import RecentLog
from leveret.management.sampling.sampler import Sampler
from leveret.session.settings import RABBITMQ_VERSION

if TYPE_CHECKING:
    from leveret.broker.core import Core
    from leveret.management.backup.backups import Backups
    from leveret.management.direct import OpenDirect
    from leveret.management.metrics.totals import Scrapes

T = TypeVar("T")


class _Waiter(EndWaiter):
    """Resolves a future at the end of a long operation."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def work_ended(self) -> None:
        """Resolve the future, unless it was cancelled."""
        if not self.future.done():
            self.future.set_result(None)


async def ended(work: Task, durable: Callable[[], Awaitable[None]]) -> None:
    """Wait until a running long operation has ended and `durable` has synced its records."""
    await durable()
    if not work.over:
        waiter = _Waiter(asyncio.get_running_loop().create_future())
        work.tell(waiter)
        await waiter.future
        await durable()


async def in_slices(core: Core, operation: Generator[int, None, T]) -> T:
    """Run a long operation in slices of a request; return its result or raise its error.

    If the client disconnects or loses its permission before the end, the operation is aborted.
    """
    outcome: list[T] = []
    task = Task(core.scheduler, _noting(operation, outcome))
    try:
        while task.step(SLICE):
            await next_slice()
    finally:
        operation.close()
    return outcome[0]


def _noting(operation: Generator[int, None, T], outcome: list[T]) -> Iterator[int]:
    outcome.append((yield from operation))


def _keeping(
    operation: Generator[int, None, T], outcome: list[T], refusal: list[AmqpError]
) -> Iterator[int]:
    try:
        outcome.append((yield from operation))
    except AmqpError as error:
        refusal.append(error.with_traceback(None))


@dataclass(frozen=True)
class Operator:
    """The server's functions and data that routes use.

    `begin` sets the core's time, and `durable` returns once everything recorded is synced.
    `hash_password` hashes a password outside the event loop.  `hold_files` prevents the removal of
    files of the data directory until `release_files` is called.  `broken` stops the broker after an
    unexpected exception.  `counts` returns the counters of the sockets by their names in the API,
    and `addresses` the listening addresses.  `scrapes` computes the totals of metrics, if they are
    served, and `sampler` computes rates.
    """

    begin: Callable[[], object]
    durable: Callable[[], Awaitable[None]]
    hash_password: Callable[[bytes], Awaitable[bytes]]
    hold_files: Callable[[], Awaitable[None]]
    release_files: Callable[[], object]
    broken: Callable[[BaseException], object]
    sampler: Sampler
    counts: Callable[[], Mapping[str, int]] = dict
    scrapes: Scrapes | None = None
    addresses: Callable[[], Sequence[ListenAddress]] = tuple
    #: Opens an AMQP channel to a vhost on behalf of a user.
    direct: OpenDirect | None = None
    #: Returns the settings in effect, without secrets.
    settings: Callable[[], Mapping[str, object]] = dict
    #: The most recent lines of the log.
    recent: RecentLog = field(default_factory=RecentLog)
    #: The Spark queries that read streams.
    queries: StreamQueries = field(default_factory=StreamQueries)
    #: Schedules the slices of all requests.
    slices: Slices = field(default_factory=Slices)
    #: The backups over HTTP, or None if they are not available.
    backups: Backups | None = None
    #: The value of `Strict-Transport-Security` over TLS, or "" to omit the header.
    hsts: str = ""
    #: The version of RabbitMQ that the broker reports.
    rabbitmq_version: str = RABBITMQ_VERSION
    #: The time at which this object was created, in seconds of a monotonic clock.
    started: float = field(default_factory=time.monotonic)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Set the core's time, run the `with` block, and wait until its changes are synced."""
        self.begin()
        yield
        await self.durable()

    async def ended(self, work: Task) -> None:
        """Wait until a running long operation has ended and its records are synced."""
        await ended(work, self.durable)

    async def performed(self, core: Core, asked: Generator[int, None, T]) -> T:
        """Run a long operation to its end, even if the client disconnects.

        Returns its result or raises its error once its records are synced.
        """
        outcome: list[T] = []
        refusal: list[AmqpError] = []
        operation = _keeping(asked, outcome, refusal)
        await self.ended(core.scheduler.start(operation))
        if refusal:
            # Popped, because the traceback of an error in the list would reference this frame.
            raise refusal.pop()
        return outcome[0]

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Prevent the removal of files of the data directory during the `with` block."""
        try:
            await self.hold_files()
            yield
        finally:
            self.release_files()
