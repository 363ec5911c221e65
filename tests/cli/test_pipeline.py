"""`leveret pipeline` without Spark: what is told of a failure."""

from __future__ import annotations

from leveret.cli.pipeline.running import cause

TEXT = """[STREAM_FAILED] Query [id = 1] terminated with exception: An error …
Traceback (most recent call last):
  File "worker.py", line 1, in main
leveret.client.errors.ClientError: the broker closed the connection

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "worker.py", line 2, in main
leveret.spark.ranges.DataLossError: stream 'orders' starts at 7

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_the_cause_is_the_last_exception_that_a_worker_raised() -> None:
    assert cause(ValueError(TEXT)) == (
        "leveret.spark.ranges.DataLossError: stream 'orders' starts at 7"
    )


def test_other_failures_are_told_by_their_first_line() -> None:
    assert cause(ValueError("[PATH_NOT_FOUND] Path does not exist: /x.\n  JVM stacktrace:")) == (
        "[PATH_NOT_FOUND] Path does not exist: /x."
    )
    assert cause(ValueError()) == "ValueError"
