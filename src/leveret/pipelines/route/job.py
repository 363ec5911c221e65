"""Routes recorded traffic in a topology, and counts the messages of each queue.

The topology is a definitions file, of the current broker or of a plan.  The traffic is a stream, an
archive, or a table with the columns exchange, routing_key and optionally headers and properties.
Nothing is published.  The broker's matchers route the distinct keys, and Spark counts the messages.

Routing ignores information that recorded traffic does not contain: BCC, which the broker removes,
permissions, exclusive queues, and dead-lettering.  Bindings that only dead letters can reach are
therefore not judged.  Each message is routed again from the exchange to which it was published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.pipelines.options import SourceOptions, takes
from leveret.pipelines.pages.origin import command_line, path_text
from leveret.pipelines.progress import Say, stages
from leveret.pipelines.refusals import JobError, at_least
from leveret.pipelines.route.result import BindingLoad, QueueLoad, ReroutedKey, Routes, Unroutable
from leveret.pipelines.route.topology import RecordedTopology, read_topology
from leveret.pipelines.source import messages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from leveret.pipelines.route.columns import RoutePlan

#: The maximum number of keys in the result: those with the most messages.
KEYS_MAX: Final = 1000

#: A queue is hot if it gets more than this many times the average of the queues with traffic.
HOT_TIMES: Final = 3

_COLUMNS: Final = (
    "timestamp timestamp, exchange string, routing_key string, headers map<string, string>"
)
_PROPERTIES: Final = (
    ", properties struct<correlation_id: string, message_id: string, timestamp: timestamp>"
)


@dataclass(frozen=True)
class RouteOptions(SourceOptions):
    """The options of the route job; `rows` can also be the source."""

    definitions: str | Path | Mapping[str, object]
    _: KW_ONLY
    vhost: str | None = None
    against: str | Path | Mapping[str, object] | None = None
    rows: DataFrame | None = None
    sizes: bool = False
    hot_times: int = HOT_TIMES
    html_path: str | Path | None = None
    progress: Say | None = None

    def __post_init__(self) -> None:
        """Check the options.  Raises: JobError."""
        at_least("hot_times", self.hot_times, 1)
        super().__post_init__()

    def check_source(self) -> None:
        """Check that exactly one source is given.  Raises: JobError."""
        if self.rows is None:
            super().check_source()
        elif self.uri is not None or self.stream is not None or self.path is not None:
            raise JobError("rows cannot be combined with uri, stream or path")


@takes(RouteOptions)
def route(spark: SparkSession, job: RouteOptions) -> Routes:
    """Route the traffic of a stream (`uri` and `stream`), an archive (`path`) or a table (`rows`).

    `definitions` has the topology: a file of definitions, or its contents.  `against` is another
    one, with which the destinations are compared.  `vhost` is needed only if they have several.
    With `sizes`, bodies are also read, to count bytes.  A queue is *hot* if it gets more than
    `hot_times` times the average of the queues that get any messages.  The other arguments are
    those of `archive`.

    Raises: JobError (a ValueError) for invalid arguments, with the position in a file; Spark's
    exceptions.
    """
    from leveret.pipelines.route.columns import make_plan

    topology = read_topology(job.definitions, job.vhost)
    other = None if job.against is None else read_topology(job.against, job.vhost)
    plan = make_plan(topology, other)
    rows, source = job.rows, "a table"
    if rows is None:
        columns = _COLUMNS + (_PROPERTIES if plan.seen.properties else "")
        rows, source = messages(spark, job, columns + (", body binary" if job.sizes else ""))
    if not job.sizes and "body" in rows.columns:
        rows = rows.drop("body")
    with stages(spark, job.progress, f"routing {source}"):
        found = _count(rows, plan, source, job.hot_times)
    if job.html_path is not None:
        from leveret.pipelines.pages.document import write_page
        from leveret.pipelines.route.page import route_page

        named = job.rows is None and not isinstance(job.definitions, Mapping)
        command = command_line(
            "route", str(job.definitions), stream=job.stream, path=path_text(job.path),
            against=path_text(job.against), vhost=job.vhost, sizes=job.sizes, uri=job.uri,
        )  # fmt: skip
        write_page(job.html_path, route_page(found, command if named else ""))
    return found


def routed(rows: DataFrame, topology: RecordedTopology) -> DataFrame:
    """Add a column `queues` with the sorted names of each message's destination queues.

    `rows` have the columns of the data source or of an archive.  A null exchange or routing key
    counts as empty.

    Raises: TopologyError (a ValueError).
    """
    from pyspark.sql import functions as f

    from leveret.pipelines.route.columns import LOOKED_AT, make_plan, names_column, with_seen

    plan = make_plan(topology)
    bound = with_seen(rows, plan.seen)
    keys = bound.select(*LOOKED_AT).distinct().withColumn("queues", names_column(plan))
    joined = bound.join(f.broadcast(keys), list(LOOKED_AT), "left")
    return joined.select(*rows.columns, "queues")


# -- counting --------------------------------------------------------------------------------------


def _count(rows: DataFrame, plan: RoutePlan, source: str, hot_times: int) -> Routes:
    """Route the distinct keys and count the messages of each destination."""
    from pyspark.sql import functions as f

    from leveret.pipelines.route.columns import LOOKED_AT, outcome_column, with_seen

    moment = _time_of(rows)
    keys = (
        with_seen(rows, plan.seen)
        .groupBy(*LOOKED_AT)
        .agg(
            f.count(f.lit(1)).alias("messages"),
            f.sum("bytes").alias("bytes"),
            f.unix_micros(f.min(moment)).alias("first"),
            f.unix_micros(f.max(moment)).alias("last"),
        )
        # For the few remaining rows, Spark's usual 200 partitions would cost more than the work.
        .coalesce(max(2, rows.sparkSession.sparkContext.defaultParallelism))
        .withColumn("outcome", outcome_column(plan))
        .select("exchange", "routing_key", "messages", "bytes", "first", "last", "outcome.*")
        .persist()
    )
    try:
        lost = f.col("reason") != ""
        moved = f.size(f.concat("gains", "losses")) > 0
        totals = keys.agg(
            f.coalesce(f.sum("messages"), f.lit(0)).alias("messages"),
            f.coalesce(f.sum("bytes"), f.lit(0)).alias("bytes"),
            f.count(f.lit(1)).alias("keys"),
            f.min("first").alias("first"),
            f.max("last").alias("last"),
            f.count_if(lost).alias("lost_keys"),
            f.coalesce(f.sum(f.when(lost, f.col("messages"))), f.lit(0)).alias("lost"),
            f.count_if(moved).alias("moved_keys"),
            f.coalesce(f.sum(f.when(moved, f.col("messages"))), f.lit(0)).alias("moved"),
        ).collect()[0]
        after = _loads(keys, "hits", "shares")
        before = {} if plan.against is None else _loads(keys, "before", "before_shares")
        return Routes(
            source=source,
            topology=plan.topology.name,
            against=None if plan.against is None else plan.against.name,
            messages=totals["messages"],
            bytes=totals["bytes"],
            keys=totals["keys"],
            queues=_queues(plan, after, before, hot_times),
            bindings=_bindings(plan, after),
            unroutable=_unroutable(keys.where(lost)) if totals["lost"] else (),
            unroutable_keys=totals["lost_keys"],
            unroutable_messages=totals["lost"],
            moved=_moved(keys.where(moved)) if totals["moved"] else (),
            moved_keys=totals["moved_keys"],
            moved_messages=totals["moved"],
            first=_moment(totals["first"]),
            last=_moment(totals["last"]),
        )
    finally:
        keys.unpersist()


def _time_of(rows: DataFrame) -> Column:
    """Return the column with the broker's time of messages, or null if there is none."""
    from pyspark.sql import functions as f

    known = dict(rows.dtypes).get("timestamp") == "timestamp"
    return f.col("timestamp") if known else f.lit(None).cast("timestamp")


def _moment(micros: int | None) -> datetime | None:
    return (
        None
        if micros is None
        else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    )


def _loads(keys: DataFrame, hits: str, shares: str) -> dict[int, tuple[int, int]]:
    """Return the messages and bytes of each queue and binding with traffic, by its hit."""
    from pyspark.sql import functions as f

    share = f.coalesce(f.get(shares, f.col("pos")), f.lit(1.0))
    found = (
        keys.select("messages", "bytes", shares, f.posexplode(hits))
        .groupBy("col")
        .agg(f.sum(f.col("messages") * share), f.sum(f.col("bytes") * share))
        .collect()
    )
    # Expected numbers of messages below 1 are rounded up to 1.
    return {row[0]: (max(1, round(row[1])), round(row[2])) for row in found}


def _queues(
    plan: RoutePlan,
    after: Mapping[int, tuple[int, int]],
    before: Mapping[int, tuple[int, int]],
    hot_times: int,
) -> tuple[QueueLoad, ...]:
    """Return the load of each queue, including queues of the other topology."""
    loads = {name: after.get(n, (0, 0)) for n, name in enumerate(plan.topology.queues)}
    old: dict[str, int] = {}
    if plan.against is not None:
        old = {name: before.get(n, (0, 0))[0] for n, name in enumerate(plan.against.queues)}
    busy = [count for count, _ in loads.values() if count > 0]
    hot_from = hot_times * sum(busy) / len(busy) if busy else 0.0
    queues = []
    for name in {**loads, **old}:
        count, size = loads.get(name, (0, 0))
        hot = len(busy) > 1 and count > hot_from
        queues.append(QueueLoad(name, count, size, old.get(name, 0), hot))
    return tuple(sorted(queues, key=lambda load: (-load.messages, -load.before, load.queue)))


def _bindings(plan: RoutePlan, loads: Mapping[int, tuple[int, int]]) -> tuple[BindingLoad, ...]:
    dead = plan.topology.for_dead_letters
    listed = [
        BindingLoad(binding, loads.get(-1 - number, (0, 0))[0], binding.source not in dead)
        for number, binding in enumerate(plan.topology.bindings)
    ]
    return tuple(sorted(listed, key=lambda load: (-load.messages, str(load.binding))))


def _unroutable(keys: DataFrame) -> tuple[Unroutable, ...]:
    return tuple(
        Unroutable(row["exchange"], row["routing_key"], row["reason"], row["messages"])
        for row in _most(keys, "reason")
    )


def _moved(keys: DataFrame) -> tuple[ReroutedKey, ...]:
    return tuple(
        ReroutedKey(
            row["exchange"],
            row["routing_key"],
            row["messages"],
            tuple(row["gains"]),
            tuple(row["losses"]),
        )
        for row in _most(keys, "gains", "losses")
    )


def _most(keys: DataFrame, *groups: str) -> list[Row]:
    """Return the keys with the most messages, by exchange, routing key and `groups`."""
    from pyspark.sql import functions as f

    columns = ("exchange", "routing_key", *groups)
    grouped = keys.groupBy(*columns).agg(f.sum("messages").alias("messages"))
    return grouped.orderBy(f.desc("messages"), *columns).limit(KEYS_MAX).collect()
