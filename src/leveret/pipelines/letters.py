"""Adds columns to dead letters: reason, queue, time, first exchange and routing key, and error.

They come from the headers that a broker adds to a dead letter (`x-death`, `x-first-death-*`).  The
data source returns headers as text, and `x-death` as JSON, so Spark computes the columns with SQL
functions, without Python.

The first exchange and routing key are in the oldest entry of `x-death`.  The `x-first-death-*`
headers identify this entry, because the order of the entries changes if a message is dead-lettered
in a cycle.

The error is in a header that the consumer's framework sets, or in a field of a JSON body.  Its
fingerprint is a digest of its kind (`kinds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from leveret.pipelines.kinds import fingerprint

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The headers in which frameworks store the error; the first existing header is used.
ERROR_HEADERS: Final = (
    "x-exception-message",
    "x-exception-stacktrace",
    "x-error",
    "x-error-message",
    "x-exception",
    "x-traceback",
    "error",
    "exception",
    "traceback",
)

#: The reason, or the queue, of letters that do not name it.
UNKNOWN: Final = "unknown"

#: The reason of messages that no queue took, and that a sink sent to its dead-letter exchange.
UNROUTABLE: Final = "unroutable"

_DEATHS: Final = (
    "array<struct<count: bigint, reason: string, queue: string, time: string, exchange: string, "
    "`routing-keys`: array<string>>>"
)

#: The characters of an error that are used, and the bytes of a body that are shown.
ERROR_CHARACTERS: Final = 300
BODY_BYTES_SHOWN: Final = 240


def letters(
    rows: DataFrame,
    error_headers: Sequence[str] = ERROR_HEADERS,
    error_path: str | None = None,
) -> DataFrame:
    """Return the dead letters among the rows, with the columns that `described` adds."""
    return described(rows, error_headers, error_path).where("is_letter").drop("is_letter")


def described(
    rows: DataFrame,
    error_headers: Sequence[str] = ERROR_HEADERS,
    error_path: str | None = None,
) -> DataFrame:
    """Add columns about dead-lettering to the rows.

    They are is_letter, died_at, reason, queue, died_times, first_exchange, first_routing_key, error
    and fingerprint (`""` if there is no error).  `error_path` is a path in a JSON body, such as
    `$.error`.
    """
    from pyspark.sql import functions as f

    headers = f.col("headers")
    deaths = f.from_json(headers["x-death"], _DEATHS)
    first_queue, first_reason = headers["x-first-death-queue"], headers["x-first-death-reason"]
    of_first = f.filter(
        "deaths", lambda d: (d["queue"] == first_queue) & (d["reason"] == first_reason)
    )
    oldest = f.coalesce(f.get(of_first, f.lit(0)), f.get("deaths", f.size("deaths") - 1))
    newest = f.get("deaths", f.lit(0))
    seconds = newest["time"].try_cast("bigint")
    signs = f.coalesce(headers["x-death"], first_reason)
    found = (
        rows.withColumn("is_letter", signs.isNotNull())
        .withColumn("deaths", deaths)
        .withColumn("_oldest", oldest)
    )
    times = f.aggregate("deaths", f.lit(0).cast("bigint"), lambda sum_, d: sum_ + d["count"])
    exchange = f.coalesce(headers["x-first-death-exchange"], f.col("_oldest.exchange"))
    error = _error(error_headers, error_path)
    return (
        found.withColumn("died_at", f.coalesce(f.timestamp_seconds(seconds), f.col("timestamp")))
        .withColumn(
            "reason",
            f.coalesce(newest["reason"], headers["x-last-death-reason"], first_reason),
        )
        .withColumn(
            "queue", f.coalesce(newest["queue"], headers["x-last-death-queue"], first_queue)
        )
        .withColumn("died_times", f.coalesce(times, f.lit(1)))
        .withColumn("first_exchange", f.coalesce(exchange, f.lit("")))
        .withColumn("first_routing_key", f.get(f.col("_oldest.routing-keys"), f.lit(0)))
        .withColumn("error", f.coalesce(error, f.lit("")))
        .withColumn("fingerprint", fingerprint("error"))
        .fillna(UNKNOWN, ["reason", "queue"])
        .drop("deaths", "_oldest")
    )


def _error(error_headers: Sequence[str], error_path: str | None) -> Column:
    """Return the first line of the error, or the last line of a Python traceback."""
    from pyspark.sql import functions as f

    texts = [f.col("headers")[name] for name in error_headers]
    if error_path is not None:
        texts.insert(0, f.get_json_object(f.col("body").cast("string"), error_path))
    if not texts:
        return f.lit(None).cast("string")
    text = f.trim(f.coalesce(*texts))
    last = f.regexp_extract(text, r"([^\n]*)$", 1)
    line = f.when(text.startswith("Traceback"), last).otherwise(
        f.regexp_extract(text, r"^([^\n]*)", 1)
    )
    return f.make_valid_utf8(f.substring(line, 1, ERROR_CHARACTERS))
