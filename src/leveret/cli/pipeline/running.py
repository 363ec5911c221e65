"""Shared by the commands of the jobs: options, the Spark session, progress lines, and failures.

Progress goes to standard error and results to standard output, so that results can be piped.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from leveret.cli import exits
from leveret.cli.helping.completing import queue_names
from leveret.cli.printing import output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Spark's master; by default `local[*]`, or spark-submit's.",
    ),
]

Stream = Annotated[
    str | None,
    typer.Option(
        "--stream", metavar="STREAM", autocompletion=queue_names, help="Read this stream."
    ),
]

Archive = Annotated[
    str | None,
    typer.Option("--path", metavar="DIR", help="Read this archive; --stream selects in it."),
]

Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="The HTML page.")]


Since = Annotated[
    str | None, typer.Option("--since", metavar="MOMENT", help="From this moment on.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="MOMENT", help="Before this moment.")]

To = Annotated[
    str | None,
    typer.Option("--to", metavar="URI", help="The broker to publish to; by default --uri."),
]

Unroutable = Annotated[
    str,
    typer.Option(
        "--unroutable",
        metavar="fail|drop|dead-letter:EXCHANGE",
        help="For a message that no queue takes.",
    ),
]

Rate = Annotated[
    int | None,
    typer.Option("--rate", metavar="NUMBER", help="At most this many messages a second."),
]

Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="The publisher; another name publishes again."),
]

Progress = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="FILE", help="Store the progress there, and resume."),
]

NoDedup = Annotated[
    bool,
    typer.Option("--no-dedup", help="For brokers without deduplication, such as RabbitMQ."),
]

#: The errors of a job that cannot reach the broker, or does not find a file.
_NO_BROKER: Final = re.compile(r"Connection(Lost|\w*Error)|TimeoutError|gaierror|cannot connect")
_NO_FILE: Final = re.compile(r"PATH_NOT_FOUND|FileNotFound|does not exist")

#: A line of a Python traceback that names the exception: `leveret.client.errors.Refused: …`.
_NAMED: Final = re.compile(r"leveret(?:\.\w+)+: |[A-Za-z_][\w.]*(?:Error|Exception): ")

#: The class and the reply code of one of Leveret's exceptions, which are removed from its text.
_CLASS: Final = re.compile(r"leveret(?:\.\w+)+: (?:\d{3} [A-Z_]+ - )?")


def say(line: str) -> None:
    """Print a line of progress."""
    output.say(line, err=True)


def trusted(uri: str) -> dict[str, str]:
    """Return the options with TLS files for source and sink, from the context or the environment.

    They are empty for a URI without TLS.  Relative paths start at the current directory of the
    command, not of Spark.
    """
    from leveret.cli.contexts.trust import VARIABLES
    from leveret.spark.options.read import TLS_FILES

    if not uri.startswith("amqps://"):
        return {}
    files = (os.environ.get(variable, "") for variable in VARIABLES.values())
    return {
        option: str(Path(file).absolute())
        for option, file in zip(TLS_FILES, files, strict=True)
        if file
    }


def trusted_there(to: str | None, uri: str) -> dict[str, str]:
    """Return the same options for the broker that a job publishes to, by default that of `uri`.

    The TLS files of a context are only for its own broker; no other broker may get its certificate.
    """
    from leveret.cli.place import find_context
    from leveret.client import parse_uri

    if to is None:
        return trusted(uri)
    context = find_context()
    there, here = parse_uri(to), parse_uri(uri)
    if context is None or context.uri != uri or (there.host, there.port) == (here.host, here.port):
        return trusted(to)
    return {}


def need_source(stream: str | None, path: str | None) -> None:
    """Check that a source is given, before Spark starts.  Raises: Failure."""
    if stream is None and path is None:
        raise exits.Failure("name a stream with --stream, or an archive with --path", exits.USAGE)


@contextmanager
def session(name: str, master: str | None) -> Iterator[SparkSession]:
    """Yield a Spark session for one job.  Raises: Failure, also for errors of the job."""
    if importlib.util.find_spec("pyspark") is None:
        text = "a pipeline needs PySpark (in a checkout of Leveret: pip install '.[spark,jdk]')"
        raise exits.Failure(text, exits.SYSTEM)
    from pyspark.errors import PySparkException

    from leveret.spark import session as make
    from leveret.spark.java import JavaError
    from leveret.spark.python import PythonError

    try:
        fast = not _submitted()
        spark = make(f"leveret {name}", master=_master(master), fast=fast, quiet=True)
    except (JavaError, PythonError) as error:
        raise exits.Failure(str(error), exits.SYSTEM) from None
    try:
        yield spark
    except ValueError as error:
        raise exits.Failure(str(error), exits.USAGE) from None
    except PySparkException as error:
        text = cause(error)
        raise exits.Failure(_CLASS.sub("", text, count=1), _code(text)) from None
    finally:
        spark.stop()


def _code(text: str) -> int:
    """Return the exit code for the error of a job."""
    if _NO_BROKER.search(text):
        return exits.UNAVAILABLE
    return exits.NO_INPUT if _NO_FILE.search(text) else exits.REFUSED


def _submitted() -> bool:
    """Return whether spark-submit has started this process, and the JVM with it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _master(given: str | None) -> str | None:
    """Return Spark's master, or None if spark-submit chooses it."""
    return given if given is not None or _submitted() else "local[*]"


def cause(error: Exception) -> str:
    """Return an error's text without tracebacks.

    The text of a worker's exception contains several tracebacks; the last line that names an
    exception belongs to the innermost one.
    """
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if _NAMED.match(line)]
    return named[-1] if named else next(iter(lines), type(error).__name__)
