"""The streams of a read on the driver: their names, starts and ends.

The streams that match a pattern, and the number of partitions of a super stream, may change while a
query runs, so the list is refreshed after `FRESH_SECONDS`.  Executors do not use this module: each
partition contains the name of its stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from pyspark.sql.types import StructType

from leveret.spark.connection.retries import ask
from leveret.spark.offsets import EARLIEST, LATEST, Moment, Position, Positions
from leveret.spark.options.read import ENDS, STARTS, OptionError, Options
from leveret.spark.stream.finder import StreamAccess
from leveret.spark.stream.ranges import report_data_loss
from leveret.spark.transport import Bounds, QueryReport, Tail
from leveret.spark.transports import Transport

#: How many streams are queried at the same time, each on its own connection.
ASKED_AT_ONCE: Final = 16

T = TypeVar("T")

#: How long a list of streams is valid.
FRESH_SECONDS: Final = 5.0


class Streams:
    """The streams that the options select, each with its own transport."""

    def __init__(
        self,
        options: Options,
        schema: StructType,
        access: StreamAccess,
    ) -> None:
        self._options = options
        self._schema = schema
        self._access = access
        self._transports: dict[str, Transport] = {}
        self._found: tuple[str, ...] = ()
        self._found_at: float | None = None

    def names(self) -> tuple[str, ...]:
        """Return the streams in order.

        Raises: Interrupted; NotFound (404) if the super stream does not exist; OptionError if a
        pattern cannot be resolved.
        """
        now = self._access.pause.now()
        if self._found_at is None or now - self._found_at >= FRESH_SECONDS:
            self._found = self._options.names or ask(
                self._options,
                self._options.title,
                lambda: self._access.find(self._options),
                self._access.pause,
            )
            self._found_at = now
            self._close(set(self._transports).difference(self._found))
        return self._found

    # -- ends --------------------------------------------------------------------------------------

    def bounds(self) -> dict[str, Bounds]:
        """Return both ends of each stream.  Raises: Interrupted; NotFound (404)."""
        return self._of_each(lambda way: way.bounds())

    def tails(self) -> dict[str, Tail]:
        """Return the end and id of each stream.  Raises: Interrupted; NotFound (404)."""
        return self._of_each(lambda way: way.tail())

    def _of_each(self, question: Callable[[Transport], T]) -> dict[str, T]:
        """Query all streams in parallel, because RabbitMQ needs 0.25 s to report the end of one."""
        ways = {name: self.transport(name) for name in self.names()}

        def ask_one(name: str) -> T:
            return self._asked(name, lambda: question(ways[name]))

        if len(ways) < 2:
            return {name: ask_one(name) for name in ways}
        with ThreadPoolExecutor(min(len(ways), ASKED_AT_ONCE)) as threads:
            return dict(zip(ways, threads.map(ask_one, ways), strict=True))

    def report(self, run: str, positions: Mapping[str, int]) -> None:
        """Report the read positions to the broker with the following requests."""
        for name in self.names():
            self.transport(name).report(QueryReport(run, positions.get(name)))

    def bounds_of(self, name: str) -> Bounds:
        """Return both ends of a stream.  Raises: Interrupted; NotFound (404)."""
        return self._asked(name, self.transport(name).bounds)

    def earliest_of(self, name: str) -> int:
        """Return the earliest offset of a stream.  Raises: Interrupted; NotFound (404)."""
        return self._asked(name, self.transport(name).earliest)

    def offset_at(self, name: str, timestamp_ms: int) -> int:
        """Return the offset of the first message at or after a time, or the end if there is none.

        Raises: Interrupted; NotFound (404).
        """
        way = self.transport(name)
        return self._asked(name, lambda: way.offset_at(timestamp_ms))

    def end_at(self, name: str, timestamp_ms: int) -> int:
        """Return an offset after every message of a stream that was received before a time.

        Raises: Interrupted; NotFound (404).
        """
        way = self.transport(name)
        return self._asked(name, lambda: way.end_at(timestamp_ms))

    def mean_bytes(self, name: str, start: int, end: int) -> float:
        """Return the approximate mean body size of a range.  Raises: Interrupted; NotFound."""
        way = self.transport(name)
        return self._asked(name, lambda: way.mean_bytes(start, end))

    def keeps_time(self, name: str) -> bool:
        """Return whether a stream stores the receipt time of each message.  Raises: Interrupted."""
        return self._asked(name, self.transport(name).keeps_time)

    def transport(self, name: str) -> Transport:
        """Return a stream's transport, which stays open."""
        if name not in self._transports:
            self._transports[name] = self._access.open(self._options, name, self._schema)
        return self._transports[name]

    def _asked(self, name: str, question: Callable[[], T]) -> T:
        return ask(self._options, f"stream {name!r}", question, self._access.pause)

    # -- positions ---------------------------------------------------------------------------------

    def starts(self, default: int, bounds: Mapping[str, Bounds]) -> dict[str, int]:
        """Return the starting offset of each stream, from the options or else from `default`.

        `default` is `EARLIEST` or `LATEST`.

        Raises: OptionError if the options name other streams, or for a time after the last message
        with the strategy `error`; DataLossError for an offset beyond the end; Interrupted;
        NotFound (404).
        """
        positions = self._checked(self._options.starting or Positions(default), STARTS, bounds)
        return {name: self._start(name, positions.of(name), ends) for name, ends in bounds.items()}

    def ends(self, bounds: Mapping[str, Bounds]) -> dict[str, int]:
        """Return the ending offset of each stream, from the options or else its current end.

        Raises: OptionError if the options name other streams; Interrupted; NotFound (404).
        """
        positions = self._checked(self._options.ending or Positions(LATEST), ENDS, bounds)
        return {name: self._end(name, positions.of(name), ends) for name, ends in bounds.items()}

    def _checked(
        self, positions: Positions, options: Iterable[str], names: Iterable[str]
    ) -> Positions:
        try:
            return self._options.positions_of(positions, names)
        except ValueError as error:
            given = next(name for name in options if name in self._options.given)
            raise OptionError(f"option {given!r}: {error}") from None

    def _start(self, name: str, position: Position, bounds: Bounds) -> int:
        if not isinstance(position, Moment):
            offset = {EARLIEST: bounds.earliest, LATEST: bounds.latest}.get(position, position)
            # Brokers without stream ids do not report the next offset of an empty stream.
            if offset <= bounds.latest or (bounds.latest == 0 and bounds.stream_id is None):
                return offset
            what = f"it ends at {bounds.latest}, before the starting offset {offset}"
            report_data_loss(self._options, name, what)
            return bounds.latest
        offset = self.offset_at(name, position.timestamp_ms)
        if offset >= bounds.latest and self._options.timestamp_strategy == "error":
            raise OptionError(
                f"stream {name!r} has no message at or after {position.timestamp_ms}; to start at "
                "its end instead, set startingOffsetsByTimestampStrategy to latest"
            )
        return offset

    def _end(self, name: str, position: Position, bounds: Bounds) -> int:
        if isinstance(position, Moment):
            return min(bounds.latest, self.offset_at(name, position.timestamp_ms))
        return bounds.latest if position == LATEST else position

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all connections."""
        self._close(set(self._transports))

    def _close(self, names: Iterable[str]) -> None:
        for name in names:
            self._transports.pop(name).close()
