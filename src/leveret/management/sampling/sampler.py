"""Samples the broker's counters every five seconds, for rates and histories.

The core only maintains plain counters; a timer reads them, in slices.  A sample and a scrape of
metrics at the same time share one walk over all queues (`Walks`).  The totals are always sampled,
so that a page has a history when it is opened.  If the broker has few queues, all of them are
sampled too; otherwise a queue is sampled for some minutes after a request for its rate.  Each
sampled queue has a series, up to a maximum: a history if it was requested individually or there are
very few queues, and enough samples for a rate if it was in a list.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from leveret.broker.broker import Broker
from leveret.broker.stats.stats import queue_names
from leveret.broker.stats.totals import QUEUE_COUNTS, QueueSums, queue_counts
from leveret.limits import RATES_MAX
from leveret.management.metrics.totals import Walks, WalkTotals
from leveret.management.requests.slices import next_slice
from leveret.management.sampling.node import NODE_COUNTS, node_counts
from leveret.management.sampling.series import DETAILED, LISTED, TOTALS, Samples

#: The maximum number of queues with a history, of up to 16 KiB each.
_HISTORIES_MAX: Final = 1_000

#: A broker with up to this many queues is sampled even without requests for rates, which takes 4 ms
#: every five seconds.
_UNASKED_QUEUES_MAX: Final = 2_000

#: Up to this many queues have a history even without requests, of 16 KiB each.
_UNASKED_HISTORIES_MAX: Final = 200

#: Without requests, two samples are one interval apart for every this many queues, rounded up.  A
#: walk over 100,000 takes 20 to 50 ms if all are empty, and up to 130 ms if all have messages: one
#: to three percent of a core at most.
_UNASKED_QUEUES_PER_SAMPLE: Final = 100_000

#: How long a queue is sampled after the last request for its rate.
_SAMPLES_KEPT_SECONDS: Final = 300

#: How long an answer of overview or nodes is reused for browser pages (ms).  A page sends a request
#: every other second, so ten pages cost little more than one.
SHARED_ANSWER_MS_MAX: Final = 1_500

#: The maximum number of reused answers, of up to half a megabyte each; the overview of one range
#: uses four.
SHARED_ANSWERS_MAX: Final = 8


#: The interval of samples.
SAMPLE_SECONDS: Final = 5.0

#: The maximum age of sums over many queues (ms): two intervals, so that a request does not wait for
#: the walk of the next sample.
_SUMS_MS_MAX: Final = int(SAMPLE_SECONDS * 2000)

#: The number of queues sampled per slice (about a millisecond).
SLICE_QUEUES: Final = 2_000

#: The names of the churn counters, as in the overview.
CHURN: Final = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)

#: The counters of clients, and of unroutable messages.
CLIENT_COUNTS: Final = ("client_publish", "confirm", "return_unroutable", "drop_unroutable")

#: The minimum time (ms) between the walks of two consecutive samples.
_NEXT_MS: Final = int(SAMPLE_SECONDS * 900)

#: The counters in a sample of the totals.
TOTAL_NAMES: Final = (*QUEUE_COUNTS, *CHURN, *CLIENT_COUNTS, *NODE_COUNTS)

#: Fast, because a page waits; higher levels gain little on text with many numbers.
_GZIP_LEVEL: Final = 1


def churn_counts(broker: Broker) -> list[int]:
    """Return the churn counters since the start, in the order of `CHURN`."""
    counts = broker.core.counts
    return [
        int(counts.connections_opened),
        int(counts.connections_closed),
        int(counts.channels_opened),
        int(counts.channels_closed),
        int(counts.queues_declared),
        int(counts.queues_created),
        int(counts.queues_deleted),
    ]


def _unroutable(broker: Broker) -> list[int]:
    """Return the numbers of unroutable messages that were returned and dropped."""
    counts = broker.core.counts
    return [int(counts.unroutable_returned), int(counts.unroutable_dropped)]


class FirstPlaces:
    """The vhosts and names of the first queues in an order, of `total` queues."""

    def __init__(
        self, key: tuple[object, ...], places: list[tuple[str, str]], total: int, until_ms: int
    ) -> None:
        self._key = key
        self.places: Final = places
        self.total: Final = total
        self._until_ms = until_ms

    def serves(self, key: tuple[object, ...], now_ms: int) -> bool:
        """Return whether these places are of the order `key` and recent enough."""
        return key == self._key and now_ms < self._until_ms


class _Watched:
    """The series of one queue, and the tick at which it was last requested."""

    def __init__(self, series: Samples, asked: int) -> None:
        self.series = series
        self.asked = asked


class Sampler:
    """The samples of one broker."""

    def __init__(
        self,
        walks: Walks,
        sockets: Callable[[], Mapping[str, int]] = dict,
        rates_max: int = RATES_MAX,
        histories_max: int = _HISTORIES_MAX,
        unasked_max: int = _UNASKED_QUEUES_MAX,
    ) -> None:
        """`sockets` returns the counters of the sockets (`Operator.counts`)."""
        self.walks: Final = walks
        self._sockets = sockets
        self._broker = walks.broker
        wall_ms = self._wall_ms = walks.clock.wall_ms
        self._rates_max = rates_max
        self._histories_max = histories_max
        self._unasked_max = min(unasked_max, rates_max)
        self.totals = Samples(TOTAL_NAMES, TOTALS)
        #: Recent answers for pages.
        self.answers: Final = SharedAnswers(wall_ms)
        #: The sampled queues, by vhost and name.
        self.queues: dict[tuple[str, str], _Watched] = {}
        #: The number of series with a history.
        self._histories = 0
        #: The last totals, and the time of the last sample (ms).
        self._found: WalkTotals | None = None
        self._sampled_ms = 0
        self._client_counts: list[int] = []
        #: The vhosts and names of queues in order, and the state for which they are valid; dropped
        #: when requests end.
        self.ordered: tuple[tuple[object, ...], list[tuple[str, str]]] | None = None
        #: The first queues in the last order by figures, for requests that follow soon.
        self.first: FirstPlaces | None = None
        self._ticks = 0
        self._asked = 0
        self._work: asyncio.Task[None] | None = None

    # -- requests ----------------------------------------------------------------------------------

    async def sums(self) -> QueueSums:
        """Return the sums over all queues; with many queues, they may be some seconds old."""
        self.ask()
        now_ms = self._wall_ms()
        known = self._found
        if known is None or known.sums.queues <= SLICE_QUEUES or self._is_old(known, now_ms):
            known = await self._take_totals()
        return known.sums

    def queue(self, vhost: str, name: str, detailed: bool = False) -> Samples | None:
        """Return the series of a queue and sample it from now on, or return None beyond the limit.

        `detailed` requests a history, which begins with the samples of an existing series.
        """
        self.ask()
        key = (vhost, name)
        known = self.queues.get(key)
        if known is not None and (known.series.detailed or not detailed):
            known.asked = self._ticks
            return known.series
        if detailed and self._histories >= self._histories_max:
            detailed = False
            if known is not None:
                return known.series
        if known is None and len(self.queues) >= self._rates_max:
            return None
        counts = queue_counts(self._broker, vhost, name)
        if counts is None:
            return None
        series = Samples(QUEUE_COUNTS, DETAILED if detailed else LISTED)
        if known is not None:
            series.carry_on(known.series)
        self._histories += detailed
        self.queues[key] = _Watched(series, self._ticks)
        series.add(self._wall_ms(), counts)
        return series

    def ask(self) -> None:
        """Sample every five seconds for some minutes, even with very many queues."""
        self._asked = self._ticks
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._run())

    def client_counts(self) -> list[int]:
        """Return the counters of clients at the last walk, in the order of `CLIENT_COUNTS`."""
        return self._client_counts

    @property
    def summed_ms(self) -> int:
        """The wall time of the last walk."""
        return self._wall_ms() if self._found is None else self._found.wall_ms

    def start(self) -> None:
        """Begin sampling without a request."""
        self._work = asyncio.get_running_loop().create_task(self._run())

    def now_ms(self) -> int:
        """Return the wall time."""
        return self._wall_ms()

    def stop(self) -> None:
        """Stop sampling."""
        if self._work is not None:
            self._work.cancel()
            self._work = None

    # -- sampling ----------------------------------------------------------------------------------

    def _is_old(self, known: WalkTotals, now_ms: int) -> bool:
        return not 0 <= now_ms - known.wall_ms < _SUMS_MS_MAX

    async def _run(self) -> None:
        """Sample every five seconds; a broker with very many queues less often without requests."""
        kept = int(_SAMPLES_KEPT_SECONDS / SAMPLE_SECONDS)
        while True:
            self._watch_all()
            queues = 0 if self._found is None else self._found.sums.queues
            if self._ticks - self._asked <= kept:
                await self.sample()
            elif self._ticks % max(1, -(-queues // _UNASKED_QUEUES_PER_SAMPLE)) == 0:
                self.ordered = self.first = None
                await self.sample()
            await asyncio.sleep(SAMPLE_SECONDS)
            self._ticks += 1
            self._forget(self._ticks - kept)

    def _watch_all(self) -> None:
        """Sample all queues, if the broker has few enough."""
        vhosts = self._broker.vhosts
        most = self._unasked_max
        if len(vhosts) > most:
            return
        count = sum(len(one.queues.by_name) for one in vhosts.values())
        if count > most:
            return
        detailed = count <= _UNASKED_HISTORIES_MAX
        grains = DETAILED if detailed else LISTED
        for key in islice(queue_names(self._broker, None), most):
            watched = self.queues.get(key)
            if watched is None:
                self.queues[key] = _Watched(Samples(QUEUE_COUNTS, grains), self._ticks)
                self._histories += detailed
            else:
                watched.asked = self._ticks

    async def sample(self) -> None:
        """Take one sample of everything."""
        # A recent walk suffices, even if a scrape made it, unless the last sample used it.
        found = await self._take_totals(self._sampled_ms + _NEXT_MS)
        self._sampled_ms = found.wall_ms
        done = found.sums.counts() + churn_counts(self._broker) + self._client_counts
        done += node_counts(self._broker, self._sockets())
        self.totals.add(found.wall_ms, done)
        for seen, (key, watched) in enumerate(list(self.queues.items()), 1):
            counts = queue_counts(self._broker, *key)
            if counts is None:
                self._drop(key)
            else:
                watched.series.add(self._wall_ms(), counts)
            if seen % SLICE_QUEUES == 0:
                await next_slice()

    async def _take_totals(self, since_ms: int = 0) -> WalkTotals:
        found = self._found = await self.walks.totals(since_ms)
        links = found.links
        self._client_counts = [
            int(links.published),
            int(links.confirmed),
            *_unroutable(self._broker),
        ]
        return found

    def _forget(self, last: int) -> None:
        """Drop the series of queues that were last requested before the tick `last`."""
        for key in [key for key, watched in self.queues.items() if watched.asked < last]:
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        watched = self.queues.pop(key, None)
        if watched is not None and watched.series.detailed:
            self._histories -= 1


class SharedAnswer:
    """One answer in JSON, and the time (ms) at which it was made."""

    def __init__(self, body: bytes, made_ms: int) -> None:
        self.body: Final = body
        self.made_ms: Final = made_ms
        self._compressed: bytes | None = None

    @property
    def compressed(self) -> bytes:
        """The answer as gzip."""
        if self._compressed is None:
            self._compressed = gzip.compress(self.body, _GZIP_LEVEL, mtime=0)
        return self._compressed


class SharedAnswers:
    """Recent answers, shared by all pages that make the same request.

    The broker's page is often open on several screens and in several tabs, which all make the same
    requests every other second.  An answer to one page is reused for the others for a short time,
    and compressed only once.  `now_ms` returns the wall time.

    Invariants: only answers that are the same for all permitted users are stored; there are at most
    `most` answers.
    """

    def __init__(self, now_ms: Callable[[], int], most: int = SHARED_ANSWERS_MAX) -> None:
        self._now_ms = now_ms
        self._most = most
        #: By path with query, the oldest first.
        self._by_path: dict[str, SharedAnswer] = {}

    def __len__(self) -> int:
        return len(self._by_path)

    def find(self, path: str) -> SharedAnswer | None:
        """Return the answer to a path with query, or None if it is missing or too old."""
        found = self._by_path.get(path)
        if found is None or self._is_old(found):
            return None
        return found

    def keep(self, path: str, body: bytes) -> SharedAnswer:
        """Store an answer for other requests, and return it."""
        for old in [key for key, one in self._by_path.items() if self._is_old(one)]:
            del self._by_path[old]
        self._by_path.pop(path, None)
        if len(self._by_path) >= self._most:
            del self._by_path[next(iter(self._by_path))]
        answer = SharedAnswer(body, self._now_ms())
        self._by_path[path] = answer
        return answer

    def _is_old(self, answer: SharedAnswer) -> bool:
        # The age is negative if the wall clock was set back.
        return not 0 <= self._now_ms() - answer.made_ms < SHARED_ANSWER_MS_MAX
