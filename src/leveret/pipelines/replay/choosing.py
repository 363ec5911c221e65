"""Selects messages for a job: by time, exchange, routing key and headers.

The broker's topic trie matches patterns, once for each distinct key of an Arrow batch.  The time of
a message is the broker's, or the publisher's if the broker, such as RabbitMQ, records none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from leveret.pipelines.refusals import JobError
from leveret.routing.topic import TopicTrie

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_KEY_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class Choice:
    """The conditions on a message: all of them must hold, and one of the patterns must match.

    A header whose value is None must exist.
    """

    since: datetime | None = None
    until: datetime | None = None
    exchange: str | None = None
    patterns: tuple[str, ...] = ()
    headers: Mapping[str, str | None] = field(default_factory=dict)

    def check(self) -> None:
        """Check that a message can meet the conditions.  Raises: JobError."""
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise JobError(f"since {self.since} is not before until {self.until}")
        for pattern in self.patterns:
            if len(pattern.encode()) > _KEY_BYTES_MAX:
                raise JobError(f"pattern {pattern[:40]!r}…: at most {_KEY_BYTES_MAX} bytes")

    def described(self) -> dict[str, object]:
        """Return the conditions, for the name of a job."""
        return {
            "since": self.since,
            "until": self.until,
            "exchange": self.exchange,
            "patterns": sorted(self.patterns),
            "headers": dict(self.headers),
        }


def chosen(rows: DataFrame, choice: Choice) -> DataFrame:
    """Return the rows that meet the conditions."""
    from pyspark.sql import functions as f

    if choice.since is not None or choice.until is not None:
        rows = in_time(rows, f.coalesce("timestamp", "properties.timestamp"), choice)
    if choice.exchange is not None:
        rows = rows.where(f.col("exchange") == choice.exchange)
    for name, value in choice.headers.items():
        there = f.map_contains_key("headers", f.lit(name))
        rows = rows.where(there if value is None else f.col("headers")[name] == value)
    if choice.patterns:
        rows = rows.where(key_matches(choice.patterns))
    return rows


def in_time(rows: DataFrame, moment: Column, choice: Choice) -> DataFrame:
    """Return the rows whose moment is at or after `since` and before `until`."""
    from pyspark.sql import functions as f

    if choice.since is not None:
        rows = rows.where(moment >= f.lit(choice.since))
    if choice.until is not None:
        rows = rows.where(moment < f.lit(choice.until))
    return rows


def key_matches(patterns: Sequence[str]) -> Column:
    """Return a column: whether routing_key matches one of the topic patterns."""
    import pyarrow as pa

    from leveret.spark.versions import arrow_udf

    held = tuple(patterns)

    def matches(keys: pa.Array) -> pa.Array:
        return matching(held, keys)

    # Spark resolves the annotations in this module's namespace, which has no `pa`.
    matches.__annotations__ = {"keys": pa.Array, "return": pa.Array}
    return arrow_udf(matches, "boolean")("routing_key")


def matching(patterns: Sequence[str], keys: pa.Array) -> pa.Array:
    """Return for each key whether one of the patterns matches."""
    import pyarrow as pa

    trie = TopicTrie()
    for pattern in patterns:
        trie.insert(pattern, pattern)
    coded = keys.fill_null("").dictionary_encode()
    fits = [bool(trie.match(key)) for key in coded.dictionary.to_pylist()]
    return pa.array(fits, pa.bool_()).take(coded.indices)


def header_choice(pairs: Sequence[str]) -> dict[str, str | None]:
    """Parse `NAME=VALUE` and `NAME` strings into a choice's headers.  Raises: JobError."""
    found: dict[str, str | None] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or name in found or re.search(r"[\x00-\x1f]", name):
            raise JobError(f"headers: {pair!r} is not NAME=VALUE, or its name is given twice")
        found[name] = value if equals else None
    return found
