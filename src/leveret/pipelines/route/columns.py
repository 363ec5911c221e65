"""Routing as a Spark column: workers route Arrow arrays of distinct keys.

A key consists of the exchange, the routing key and `seen`, which contains the headers and
properties that an exchange of the topology uses.  `seen` is a JSON array in the order of
`SeenNames`, or `""` if the message has none of them.  In the array, null is an absent header, `""`
is a header without a value, and `=` precedes a value.

Each worker creates the router of a topology once, and reuses it.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from leveret.pipelines.route.matchers import MessageKey
from leveret.pipelines.route.router import Router, RouteResult
from leveret.pipelines.route.topology import RecordedTopology

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The columns of a message that routing uses.
LOOKED_AT: Final = ("exchange", "routing_key", "seen")

#: The number of routers that a worker caches: two for a plan, and two for the previous run.
_KEPT: Final = 4
_routers: dict[str, Router] = {}

#: The result for a key.  `hits` contains the numbers of queues, and -1 minus the numbers of
#: bindings; `shares` contains their shares, if a random exchange is involved.  `before` and
#: `before_shares` are the same for the other topology.
OUTCOME_TYPE: Final = (
    "struct<hits: array<int>, shares: array<double>, reason: string, "
    "before: array<int>, before_shares: array<double>, gains: array<string>, losses: array<string>>"
)
_FIELDS: Final = [
    pa.field("hits", pa.list_(pa.int32())),
    pa.field("shares", pa.list_(pa.float64())),
    pa.field("reason", pa.string()),
    pa.field("before", pa.list_(pa.int32())),
    pa.field("before_shares", pa.list_(pa.float64())),
    pa.field("gains", pa.list_(pa.string())),
    pa.field("losses", pa.list_(pa.string())),
]


@dataclass(frozen=True, slots=True)
class SeenNames:
    """The headers and properties that routing uses, in the order of the column `seen`."""

    headers: tuple[str, ...]
    properties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """A topology, optionally another to compare with, and the headers and properties they use."""

    topology: RecordedTopology
    against: RecordedTopology | None
    seen: SeenNames
    #: The key of the topologies in the workers' caches.
    digest: str


def make_plan(topology: RecordedTopology, against: RecordedTopology | None = None) -> RoutePlan:
    """Return the plan for a topology.  Raises: TopologyError if it cannot route messages."""
    routers = [Router(one) for one in (topology, against) if one is not None]
    headers = set[str]().union(*(router.header_names() for router in routers))
    properties = set[str]().union(*(router.property_names() for router in routers))
    seen = SeenNames(tuple(sorted(headers)), tuple(sorted(properties)))
    digest = hashlib.sha256(pickle.dumps((topology, against))).hexdigest()
    return RoutePlan(topology, against, seen, digest)


def with_seen(rows: DataFrame, seen: SeenNames) -> DataFrame:
    """Add the columns that routing uses, and `bytes`, which is 0 if there is no column `body`."""
    from pyspark.sql import functions as f

    parts: list[Column] = []
    for name in seen.headers:
        if "headers" in rows.columns:
            # A header without a value differs from an absent one.
            value = f.coalesce(f.concat(f.lit("="), f.col("headers")[name]), f.lit(""))
            parts.append(f.when(f.map_contains_key("headers", f.lit(name)), value))
        else:
            parts.append(f.lit(None).cast("string"))
    for name in seen.properties:
        if "properties" in rows.columns:
            held = f.col(f"properties.{name}")
            held = f.unix_seconds(held) if name == "timestamp" else held
            parts.append(f.concat(f.lit("="), held.cast("string")))
        else:
            parts.append(f.lit(None).cast("string"))
    # Most messages have none of them.  The column is text, by which Spark groups fastest.
    any_seen = f.coalesce(*parts).isNotNull()
    size = f.length("body").cast("bigint") if "body" in rows.columns else f.lit(0).cast("bigint")
    return rows.select(
        *(rows[name] for name in rows.columns if name not in {*LOOKED_AT, "bytes"}),
        f.coalesce("exchange", f.lit("")).alias("exchange"),
        f.coalesce("routing_key", f.lit("")).alias("routing_key"),
        f.when(any_seen, f.to_json(f.array(*parts))).otherwise("").alias("seen"),
        size.alias("bytes"),
    )


def outcome_column(plan: RoutePlan) -> Column:
    """Return the column of type `OUTCOME_TYPE` for the columns exchange, routing_key and seen."""

    def outcomes(exchange: pa.Array, routing_key: pa.Array, seen: pa.Array) -> pa.Array:
        return outcome_array(plan, exchange, routing_key, seen)

    return _computed(outcomes, OUTCOME_TYPE)


def names_column(plan: RoutePlan) -> Column:
    """Return the names of the queues for the columns exchange, routing_key and seen."""

    def names(exchange: pa.Array, routing_key: pa.Array, seen: pa.Array) -> pa.Array:
        return names_array(plan, exchange, routing_key, seen)

    return _computed(names, "array<string>")


def _computed(function: Callable[[pa.Array, pa.Array, pa.Array], pa.Array], kind: str) -> Column:
    from leveret.spark.versions import arrow_udf

    return arrow_udf(function, kind)(*LOOKED_AT)


def outcome_array(plan: RoutePlan, exchange: pa.Array, key: pa.Array, seen: pa.Array) -> pa.Array:
    """Return the routing result of each message."""
    traffic = _messages(plan.seen, exchange, key, seen)
    router = _router(plan.digest, plan.topology)
    rows: dict[str, list[Any]] = {field.name: [] for field in _FIELDS}
    other = plan.against
    comparing = None if other is None else _router(f"against {plan.digest}", other)
    for message in traffic:
        after = router.route(message)
        hits, shares = _hits(after)
        rows["hits"].append(hits)
        rows["shares"].append(shares)
        rows["reason"].append(after.reason)
        if other is not None and comparing is not None:
            before = comparing.route(message)
            hits, shares = _hits(before)
            rows["before"].append(hits)
            rows["before_shares"].append(shares)
            ours = {plan.topology.queues[number] for number in after.queues}
            theirs = {other.queues[number] for number in before.queues}
            rows["gains"].append(sorted(ours - theirs))
            rows["losses"].append(sorted(theirs - ours))
    count = len(exchange)
    arrays = [pa.array(rows[field.name] or [None] * count, field.type) for field in _FIELDS]
    return pa.StructArray.from_arrays(arrays, fields=_FIELDS)


def names_array(plan: RoutePlan, exchange: pa.Array, key: pa.Array, seen: pa.Array) -> pa.Array:
    """Return the sorted names of the queues that each message is routed to."""
    router = _router(plan.digest, plan.topology)
    queues = plan.topology.queues
    found = [
        sorted(queues[number] for number in router.route(message).queues)
        for message in _messages(plan.seen, exchange, key, seen)
    ]
    return pa.array(found, pa.list_(pa.string()))


def _hits(outcome: RouteResult) -> tuple[list[int], list[float] | None]:
    """Return the hits of a result, and their shares, or None if all shares are 1."""
    hits = [*outcome.queues, *(-1 - number for number in outcome.bindings)]
    shares = [*outcome.queues.values(), *outcome.bindings.values()]
    return hits, None if all(share == 1.0 for share in shares) else shares


def _messages(
    seen: SeenNames, exchange: pa.Array, key: pa.Array, held: pa.Array
) -> list[MessageKey]:
    names = len(seen.headers)
    none: list[str | None] = [None] * (names + len(seen.properties))
    messages = []
    rows = zip(exchange.to_pylist(), key.to_pylist(), held.to_pylist(), strict=True)
    for of_exchange, of_key, text in rows:
        values: list[str | None] = json.loads(text) if text else none
        headers = _known(seen.headers, values[:names])
        properties = _known(seen.properties, values[names:])
        messages.append(MessageKey(of_exchange, of_key, headers, properties))
    return messages


def _known(names: tuple[str, ...], values: list[str | None]) -> dict[str, str | None]:
    """Return the present headers or properties; None means "without a value"."""
    return {
        name: value[1:] if value else None
        for name, value in zip(names, values, strict=True)
        if value is not None
    }


def _router(digest: str, topology: RecordedTopology) -> Router:
    """Return the cached or new router of a topology."""
    router = _routers.get(digest)
    if router is None:
        while len(_routers) >= _KEPT:
            del _routers[next(iter(_routers))]
        router = _routers[digest] = Router(topology)
    return router
