"""Redaction of broker URIs, which may contain passwords, in Spark's plans and event log.

Spark prints the options of `CREATE TEMPORARY VIEW … USING … OPTIONS (…)` in the plan of that
statement, and writes the plan to its event log.  It hides the values of options whose names match
one pattern, by default only `url`, and parts of a plan's text that match a second pattern.  Both
patterns are settings of a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The patterns of option names, including `httpUri`, and of passwords in URIs.  Java requires a
#: bounded look-behind.
PATTERNS: Final = {
    "spark.sql.redaction.options.regex": "(?i)ur[il]",
    "spark.sql.redaction.string.regex": r"(?<=(?i:amqps?)://[^:/?#@\s]{0,255}:)[^/?#\s]+(?=@)",
}


def hide_uris(spark: SparkSession) -> None:
    """Add the patterns for URIs to a session's redaction settings."""
    for setting, pattern in PATTERNS.items():
        present = spark.conf.get(setting, None)
        if not present:
            spark.conf.set(setting, pattern)
        elif pattern not in present:
            spark.conf.set(setting, f"{present}|{pattern}")
