"""Positions in streams, in the JSON that Spark stores and in the users' options.

An offset is the number of the *next* message to read: `{"orders-0": 1200}` means that all messages
below 1200 were read.  Spark stores this JSON unchanged in its checkpoint, so its format cannot
change.  If a limit makes some streams wait, the names are in the order in which the streams were
served, longest ago first.  Otherwise they are in alphabetical order.

A stream may be deleted, and another one declared with the same name.  So the offsets also contain
the ids of the streams under the empty name, if the broker has ids:
`{"orders-0": 1200, "": {"ids": {"orders-0": "9f86d081884c7d65"}}}`.  Older releases stored no ids;
such a stream gets the id of the existing stream of its name.  Spark before 4.2 does not request the
ends of the streams, so for these versions the offsets contain the ends too:
`"": {"latest": {"orders-0": 1500}}`.  Only the lag depends on them.

In options, -2 means the earliest and -1 the latest, as in Spark's Kafka source.  A time means the
first message that the broker received at or after it.  Options may also have Kafka's form, with
topics and partitions: `{"orders": {"0": 1200}}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from leveret.spark.errors import SourceError

EARLIEST: Final = -2
LATEST: Final = -1

_OFFSET_MAX: Final = 2**63 - 1

#: The end of the year 9999 in milliseconds.
_MOMENT_MAX: Final = 253_402_300_799_999

#: Enough digits for every partition of a super stream.
_PARTITION_DIGITS_MAX: Final = 9

#: The key for other values than offsets, because no stream has an empty name.
_OWN: Final = ""
_IDS: Final = "ids"
_SIZES: Final = "mean_bytes"
_LATEST: Final = "latest"

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


class OffsetsError(SourceError, ValueError):
    """A query cannot continue from its stored offsets."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The first message that the broker received at or after this time."""

    timestamp_ms: int


#: An offset, `EARLIEST`, `LATEST` or a moment.
Position = int | Moment

#: A stream as Kafka names it: its topic and its partition.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Positions:
    """The starts or ends of streams: one for all, or one for each stream by name or by place."""

    every: Position | None = None
    named: tuple[tuple[str, Position], ...] = ()
    placed: tuple[tuple[Place, Position], ...] = ()

    def by_name(self, places: Mapping[str, Place]) -> Positions:
        """Return the positions by stream name, given the place of each stream."""
        if not self.placed:
            return self
        names = {place: name for name, place in places.items()}
        return Positions(
            named=tuple(
                (names.get(place, f"partition {place[1]} of {place[0]}"), position)
                for place, position in self.placed
            )
        )

    def check(self, streams: Iterable[str]) -> None:
        """Check that exactly the given streams have a position.  Raises: ValueError."""
        if self.every is not None:
            return
        wanted = set(streams)
        given = {name for name, _ in self.named}
        if missing := sorted(wanted - given):
            raise ValueError(
                f"it must name every stream, and these are missing: {', '.join(missing)} "
                "(-2 is the earliest, -1 the latest)"
            )
        if others := sorted(given - wanted):
            raise ValueError(f"it names streams that are not read: {', '.join(others)}")

    def of(self, stream: str) -> Position:
        """Return a stream's position.  Raises: KeyError if the stream was not checked."""
        return dict(self.named)[stream] if self.every is None else self.every

    def __contains__(self, position: Position) -> bool:
        """Return whether any stream has this position."""
        given = [self.every, *(one for _, one in self.named), *(one for _, one in self.placed)]
        return position in given


def parse_offsets(text: str) -> Positions:
    """Parse `earliest`, `latest` or `{"orders": 1200}`.  Raises: ValueError."""
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return Positions(word)
    return _named(text, "neither earliest, latest nor JSON", _offset)


def parse_moment(text: str) -> Positions:
    """Parse milliseconds since 1970, for all streams.  Raises: ValueError."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text!r} is not a number of milliseconds since 1970")
    return Positions(_moment(int(digits)))


def parse_moments(text: str) -> Positions:
    """Parse `{"orders": 1700000000000}`.  Raises: ValueError."""
    return _named(text, "not JSON", _moment)


def _named(text: str, refusal: str, read: Callable[[object], Position]) -> Positions:
    """Parse positions by stream name, or by topic and partition as in Kafka."""
    try:
        named = json.loads(text)
    except ValueError:
        raise ValueError(f"{text!r} is {refusal}") from None
    if not isinstance(named, dict) or not named:
        raise ValueError(f'{text!r} does not name the streams: {{"orders": 1200}}')
    kinds = {isinstance(value, dict) for value in named.values()}
    if kinds == {False}:
        return Positions(named=tuple((name, read(value)) for name, value in named.items()))
    if kinds != {True}:
        raise ValueError(
            'it has two forms at once; name streams, {"orders": 1200}, or, as for Kafka, topics '
            'and partitions, {"orders": {"0": 1200}}'
        )
    return Positions(
        placed=tuple(
            ((topic, partition_number(number)), read(value))
            for topic, partitions in named.items()
            for number, value in partitions.items()
        )
    )


def partition_number(text: str) -> int:
    """Parse the number of a partition.  Raises: ValueError."""
    if text.isascii() and text.isdigit() and len(text) <= _PARTITION_DIGITS_MAX:
        return int(text)
    raise ValueError(f"{text!r} is not the number of a partition")


def _number(value: object, least: int, most: int, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise ValueError(f"{value!r} is not {what}")


def _offset(value: object) -> int:
    what = "an offset (-2 is the earliest, -1 the latest)"
    return _number(value, EARLIEST, _OFFSET_MAX, what)


def _moment(value: object) -> Moment:
    return Moment(_number(value, 0, _MOMENT_MAX, "a number of milliseconds since 1970"))


@dataclass(frozen=True, slots=True)
class Stored:
    """The state of a query that Spark stores: the next offset and the id of each stream.

    `offsets` is in the order in which the streams were served.  `ids` lacks streams of brokers
    without ids, such as RabbitMQ, and streams that an older release stored.
    """

    offsets: dict[str, int]
    ids: dict[str, str] = field(default_factory=dict)
    #: The mean message size of each stream, which is only in a query's progress.
    mean_bytes: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the JSON object that Spark stores."""
        ids = {name: self.ids[name] for name in sorted(self.ids) if name in self.offsets}
        own = {key: of for key, of in ((_IDS, ids), (_SIZES, self.mean_bytes)) if of}
        return {**self.offsets, _OWN: own} if own else {**self.offsets}


def with_latest(stored: Mapping[str, object], latest: Mapping[str, object]) -> dict[str, object]:
    """Add the streams' latest offsets to stored offsets, from which `latest_of` returns them."""
    own = stored.get(_OWN, {})
    assert isinstance(own, dict)
    return {**stored, _OWN: {**own, _LATEST: {**latest}}}


def latest_of(stored: Mapping[str, object]) -> dict[str, object] | None:
    """Return the streams' latest offsets in stored offsets, or None if there are none."""
    own = stored.get(_OWN)
    latest = own.get(_LATEST) if isinstance(own, dict) else None
    return latest if isinstance(latest, dict) else None


def refusal(text: str) -> dict[str, object]:
    """Return offsets that `from_json` refuses with this text."""
    return {_OWN: text}


def from_json(stored: Mapping[str, object]) -> Stored:
    """Parse the JSON stored by Spark.

    Raises: OffsetsError if another source stored it, or if it is a `refusal`.
    """
    own = stored.get(_OWN, {})
    if isinstance(own, str):
        raise OffsetsError(own)
    ids = own.get(_IDS, {}) if isinstance(own, dict) else None
    sizes = own.get(_SIZES, {}) if isinstance(own, dict) else {}
    offsets = {name: offset for name, offset in stored.items() if name != _OWN}
    if (
        not all(_is_offset(offset) for offset in offsets.values())
        or not isinstance(ids, dict)
        or not all(isinstance(one, str) for one in ids.values())
    ):
        raise OffsetsError(
            f"the checkpoint is not of streams: {json.dumps(stored)}; a query that read another "
            "source, such as Kafka, needs a new checkpointLocation"
        )
    return Stored(cast("dict[str, int]", offsets), ids, sizes)


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
