"""`leveret pipeline` without Spark: what is told of a failure."""

from __future__ import annotations

import pytest

from leveret.cli import app, exits
from leveret.cli.pipeline.group import MODULES
from leveret.cli.pipeline.running import cause
from leveret.cli.pipeline.submit import submit_file

TEXT = """[STREAM_FAILED] Query [id = 1] terminated with exception: An error …
Traceback (most recent call last):
  File "worker.py", line 1, in main
leveret.client.errors.ClientError: the broker closed the connection

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "worker.py", line 2, in main
leveret.spark.stream.ranges.DataLossError: stream 'orders' starts at 7

\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_the_cause_is_the_last_exception_that_a_worker_raised() -> None:
    assert cause(ValueError(TEXT)) == (
        "leveret.spark.stream.ranges.DataLossError: stream 'orders' starts at 7"
    )
    unreachable = "leveret.spark.connection.retries.BrokerUnreachable: stream 's' at amqp://h:1: no"
    assert (
        cause(ValueError(f"[X] Failed: Traceback\n{unreachable}\n SQLSTATE: 38000")) == unreachable
    )


def test_other_failures_are_told_by_their_first_line() -> None:
    assert cause(ValueError("[PATH_NOT_FOUND] Path does not exist: /x.\n  JVM stacktrace:")) == (
        "[PATH_NOT_FOUND] Path does not exist: /x."
    )
    assert cause(ValueError()) == "ValueError"


def refused(*arguments: str) -> None:
    """Check that a command line ends as one that makes no sense."""
    with pytest.raises(SystemExit) as ended:
        app(["pipeline", *arguments], prog_name="leveret")
    assert ended.value.code == exits.USAGE


def test_what_needs_no_spark_to_be_refused_is_refused_without_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for job in ("report", "deadletter", "republish", "replay"):
        refused(job)
        assert "--stream" in capsys.readouterr().err
    refused("route", "definitions.json")
    assert "--stream" in capsys.readouterr().err
    refused("republish", "--stream", "s")
    assert "or --all" in capsys.readouterr().err


def test_every_job_has_a_file_for_spark_submit() -> None:
    jobs = [command.__name__ for module in MODULES for command in module.COMMANDS]
    for job in jobs:
        assert f'run("{job}")' in submit_file(job).read_text()
    assert len(list(submit_file("route").parent.glob("[a-z]*.py"))) == len(jobs)
    for wrong in ("none", "__init__"):
        with pytest.raises(KeyError):
            submit_file(wrong)
