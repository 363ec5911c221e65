"""The totals of one broker, computed by walks over its queues and connections.

One walk runs at a time, and callers that arrive during it get its result.  On a broker with very
many queues, the last totals are reused for a short time, so that frequent requests cannot keep it
busy, and one walk serves both samples and scrapes.  With 100,000 queues, a walk takes about 20 ms
of a core.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.broker.stats.metrics import QueueLevels, QueueWalk
from leveret.broker.stats.totals import QueueSums
from leveret.limits import SCRAPES_PER_OBJECT_MAX
from leveret.management.requests.slices import next_slice
from leveret.session.metrics import ChannelLevels, LinkWalk

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.broker.counters import LinkCounts, QueueCounts
    from leveret.clock import Clock

#: Queues or connections that a walk visits per slice, at most half a millisecond of compiled code.
#: An empty queue takes 50 lines, one with messages and consumers four times as many.
SCRAPE_SLICE: Final = 500

#: Totals are reused for a millisecond per this many queues and connections, so that constant
#: requests take only a small part of a core.
_SCRAPE_OBJECTS_PER_MS: Final = 100

#: The minimum time (ms) for which totals of at least this many queues and connections are reused.
#: It is half of the interval of samples, so that one walk suffices for samples and for a scrape
#: every five seconds.  RabbitMQ's own figures are up to five seconds old.
WALK_SHARED_MS: Final = 2_500
WALK_SHARED_OBJECTS_MIN: Final = 2_000


_STATM: Final = Path("/proc/self/statm")


async def in_slices(walk: Iterator[int], most: int) -> None:
    """Run a walk that yields numbers of visited objects, in slices of `most` objects."""
    looked = 0
    for count in walk:
        looked += count
        if looked >= most:
            looked = 0
            await next_slice()


class WalkTotals:
    """The result of a walk, which ended at `wall_ms`; `sums` excludes unlisted queues."""

    def __init__(
        self,
        queues: dict[str, QueueCounts],
        levels: QueueLevels,
        links: LinkCounts,
        channels: ChannelLevels,
        sums: QueueSums,
        wall_ms: int,
    ) -> None:
        self.queues: Final = queues
        self.levels: Final = levels
        self.links: Final = links
        self.channels: Final = channels
        self.sums: Final = sums
        self.wall_ms: Final = wall_ms


class Walks:
    """The walks over the queues and connections of one broker."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self.broker: Final = broker
        self.clock: Final = clock
        self._walking: asyncio.Task[WalkTotals] | None = None
        self._last: WalkTotals | None = None
        #: The time until which the last totals are reused.
        self._until_ms = 0

    async def totals(self, since_ms: int = 0) -> WalkTotals:
        """Return the totals of a walk that ended after `since_ms` (wall time) or is in progress.

        A walk continues even if its caller is cancelled.
        """
        if self._walking is None:
            last = self._last
            fresh = self.clock.monotonic_ms() < self._until_ms
            if last is not None and fresh and last.wall_ms >= since_ms:
                return last
            self._walking = asyncio.get_running_loop().create_task(self._walk())
        return await asyncio.shield(self._walking)

    async def _walk(self) -> WalkTotals:
        broker = self.broker
        try:
            number = broker.core.counts.begin_walk()
            queues = QueueWalk(broker, number)
            await in_slices(queues.see_all(), SCRAPE_SLICE)
            links = LinkWalk(broker, number)
            await in_slices(links.see_all(), SCRAPE_SLICE)
            found = self._last = self._found(queues, links)
            objects = queues.size + len(broker.links)
            kept_ms = objects // _SCRAPE_OBJECTS_PER_MS
            if objects >= WALK_SHARED_OBJECTS_MIN:
                kept_ms = max(kept_ms, WALK_SHARED_MS)
            self._until_ms = self.clock.monotonic_ms() + kept_ms
            return found
        finally:
            self._walking = None

    def _found(self, queues: QueueWalk, links: LinkWalk) -> WalkTotals:
        done = queues.finish()
        sums = QueueSums()
        sums.add_levels(queues.levels)
        for counts in done.values():
            sums.done.add(counts)
        sums.done.add(queues.unlisted, -1)
        wall_ms = self.clock.wall_ms()
        return WalkTotals(done, queues.levels, links.finish(), links.levels, sums, wall_ms)


class Scrapes:
    """The scrapes of one broker, on any listener."""

    def __init__(self, walks: Walks, prefix: str, version: str) -> None:
        self.walks: Final = walks
        #: The default prefix of RabbitMQ's names, and the version of RabbitMQ that the broker
        #: reports.
        self.prefix: Final = prefix
        self.version: Final = version
        self._since_ms: Final = walks.clock.monotonic_ms()
        #: The number of answers in progress with an entry for each object.
        self._busy = 0

    def uptime_seconds(self) -> float:
        """Return the time since the broker began to listen."""
        return (self.walks.clock.monotonic_ms() - self._since_ms) / 1000

    def enter(self) -> bool:
        """Begin an answer with per-object entries; return False if too many are in progress."""
        if self._busy >= SCRAPES_PER_OBJECT_MAX:
            return False
        self._busy += 1
        return True

    def leave(self) -> None:
        """End an answer with an entry for each object."""
        self._busy -= 1


def resident_bytes() -> int:
    """Return the resident memory of the process, or 0 if the system does not provide it."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
