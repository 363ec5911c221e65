"""Dead letters as rows: why, where and when each died, where it was published, and its error.

All of this is in the headers that a broker puts on a letter (`x-death`, `x-first-death-*`), which
the data source returns as text, `x-death` as JSON; so this is plain SQL that Spark runs without
Python.

The first publish is that of the oldest death, the entry that the `x-first-death-*` headers name;
entries of a letter in a cycle change places.

The fingerprint of an error is that of its text without the parts that differ from letter to letter:
numbers, ids, quoted text.  A broker does not know errors: the text is a header that the consumer's
framework sets, or a field of a JSON body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The headers in which frameworks store the error; the first that exists counts.
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

#: The reason of letters without one.
UNKNOWN: Final = "unknown"

#: The reason of messages that no queue took and a sink sent to its dead-letter exchange.
UNROUTABLE: Final = "unroutable"

_DEATHS: Final = (
    "array<struct<count: bigint, reason: string, queue: string, time: string, exchange: string, "
    "`routing-keys`: array<string>>>"
)

#: Characters of an error's line that are examined, and bytes of a body that are shown.
ERROR_CHARACTERS: Final = 300
BODY_BYTES_SHOWN: Final = 240

#: The parts that differ from letter to letter, and their replacements, in this order.
_VARIABLE: Final = (
    ("[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", "<id>"),
    (r"0x[0-9a-fA-F]+|\b(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b", "<hex>"),
    ("'[^']*'|\"[^\"]*\"|`[^`]*`", "<text>"),
    (r"[0-9]+(?:[.,:][0-9]+)*", "<n>"),
    (r"\s+", " "),
)


def letters(
    rows: DataFrame,
    error_headers: Sequence[str] = ERROR_HEADERS,
    error_path: str | None = None,
) -> DataFrame:
    """Return the dead letters among rows, with the facts of their death; see `described`."""
    return described(rows, error_headers, error_path).where("is_letter").drop("is_letter")


def described(
    rows: DataFrame,
    error_headers: Sequence[str] = ERROR_HEADERS,
    error_path: str | None = None,
) -> DataFrame:
    """Return rows with the facts of their death; all columns are kept.

    The new columns are is_letter, died_at, reason, queue, died_times, first_exchange,
    first_routing_key, error and fingerprint (`""` without an error).  `error_path` is a path into a
    JSON body, such as `$.error`.
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
    """Return the line with the error: the first, or the last one of a Python traceback."""
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


def fingerprint(column: str) -> Column:
    """Return twelve hexadecimal digits, equal for errors of one kind; `""` without an error."""
    from pyspark.sql import functions as f

    kind = error_kind(column)
    digits = f.substring(f.sha2(kind, 256), 1, 12)
    return f.when(f.col(column) == "", "").otherwise(digits)


def error_kind(column: str) -> Column:
    """Return an error's text without the parts that differ from letter to letter."""
    from pyspark.sql import functions as f

    text = f.col(column)
    for pattern, word in _VARIABLE:
        text = f.regexp_replace(text, pattern, word)
    return f.trim(text)
