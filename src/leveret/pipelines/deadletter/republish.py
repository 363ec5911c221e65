"""Publishes dead letters of a stream or an archive again, each to the queue in which it died.

Other queues that received the message may have processed it.  `sending` ensures that each letter is
published once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from leveret.pipelines.letters import ERROR_HEADERS, UNKNOWN, UNROUTABLE, letters
from leveret.pipelines.options import takes
from leveret.pipelines.refusals import JobError
from leveret.pipelines.replay.choosing import Choice, in_time
from leveret.pipelines.replay.job import source_parts
from leveret.pipelines.replay.sending import Destination, PublishOptions, Sent, place_of, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class RepublishOptions(PublishOptions):
    """The options of republishing: the broker, the selected letters, and another destination."""

    to_uri: str = field(repr=False)
    _: KW_ONLY
    reason: str | None = None
    queue: str | None = None
    fingerprint: str | None = None
    error_headers: Sequence[str] = ERROR_HEADERS
    error_path: str | None = None
    to_queue: str | None = None
    to_exchange: str | None = None
    as_published: bool = False
    unroutable: str = "fail"
    dedup: bool = True
    to_password_env: str | None = None
    to_options: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Check the options.  Raises: JobError."""
        super().__post_init__()
        if len(self.place) > 1:
            raise JobError(f"give only one of: {', '.join(self.place)}")

    @property
    def place(self) -> dict[str, object]:
        """The given options for a destination other than the queue in which each letter died."""
        said: dict[str, object] = {} if self.to_queue is None else {"to_queue": self.to_queue}
        said |= {} if self.to_exchange is None else {"to_exchange": self.to_exchange}
        return said | ({"as_published": True} if self.as_published else {})

    @property
    def wanted(self) -> dict[str, str | None]:
        """The columns that select letters by a value; a value of None does not select."""
        return {"reason": self.reason, "queue": self.queue, "fingerprint": self.fingerprint}

    @property
    def destination(self) -> Destination:
        """The destination of all letters."""
        return Destination(
            self.to_uri,
            exchange=self.to_exchange,
            queue=self.to_queue,
            password_env=self.to_password_env,
            unroutable=self.unroutable,
            dedup=self.dedup,
            options=self.to_options or {},
        )

    @property
    def own_name(self) -> str:
        """The job's name: the same for the same letters and destination.

        Without the options of `place`, it equals the name in earlier releases.  These sent every
        letter as published, so it also reached the queue in which it died, and that queue
        recognizes it by this name.
        """
        said = {**self.choice.described(), **self.wanted, "error_path": self.error_path}
        return self.name_of("deadletter", to=place_of(self.to_uri), **said, **self.place)


@takes(RepublishOptions)
def republish(spark: SparkSession, job: RepublishOptions) -> Sent:
    """Publish dead letters again, each only to the queue in which it died.

    `to_queue` sends all of them to one queue or stream, `to_exchange` sends them to an exchange
    with their first routing keys, and `as_published` sends them to their first exchanges, and so to
    all queues bound to these.  A letter that no queue took (reason `unroutable`) is always sent as
    published.

    `to_uri` is the broker to publish to, whose options are `to_password_env` and `to_options`.  The
    source and the other arguments are those of `replay`.  `reason`, `queue` and `fingerprint` (of
    the error, as `deadletter` reports it with the same `error_headers` and `error_path`) select
    letters, and so do `since` and `until`.  `unroutable` and `dedup` are those of a `Destination`.

    Raises: JobError (a ValueError) for invalid arguments; Spark's exceptions, with the source's or
    sink's reason.
    """

    def choose(rows: DataFrame) -> DataFrame:
        found = letters(rows, job.error_headers, job.error_path)
        as_published = job.as_published or job.to_exchange is not None
        return _addressed(found, job.choice, job.wanted, as_published)

    return send(spark, source_parts(spark, job, choose), job.own_name, job.destination, job)


def _addressed(
    found: DataFrame, choice: Choice, wanted: Mapping[str, str | None], as_published: bool
) -> DataFrame:
    """Return the selected letters, addressed to the queues in which they died.

    Letters with the reason `unroutable`, which no queue took, have their first exchange and routing
    key; with `as_published`, all letters do.  For any other letter without a queue, Spark raises an
    error, because its destination is unknown.
    """
    from pyspark.sql import functions as f

    taken = in_time(found, f.col("died_at"), choice)
    for column, value in wanted.items():
        taken = taken if value is None else taken.where(f.col(column) == value)
    key = f.coalesce("first_routing_key", "routing_key")
    if as_published:
        return taken.withColumns({"exchange": f.col("first_exchange"), "routing_key": key})
    homeless = f.raise_error(
        f.concat(
            f.lit("the dead letter at offset "),
            f.col("offset").cast("string"),
            f.lit(
                " does not name the queue it died in: select other letters, or set a destination "
                "(to_queue, to_exchange, as_published)"
            ),
        )
    ).cast("string")
    unrouted = f.col("reason") == UNROUTABLE
    died_in = f.when(f.col("queue") == UNKNOWN, homeless).otherwise(f.col("queue"))
    return taken.withColumns(
        {
            "exchange": f.when(unrouted, f.col("first_exchange")).otherwise(f.lit("")),
            "routing_key": f.when(unrouted, key).otherwise(died_in),
        }
    )
