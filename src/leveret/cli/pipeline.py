"""`leveret pipeline`: the Spark jobs, each run once with a session of its own.

A longer life (a cluster, a schedule, a query that goes on) is the functions' of
`leveret.pipelines`; here are the jobs as one types them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leveret.cli import exits, options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str, typer.Option("--master", metavar="MASTER", help="Where Spark runs: `local[*]`, a cluster.")
]


def archive(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream to archive.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The archive, a directory.")],
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="What was archived already."),
    ] = None,
    master: Master = "local[*]",
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Archive what a stream holds to Parquet, exactly once; a later run adds what came since."""
    with _session("leveret archive", master) as spark:
        from leveret.pipelines import archive as run

        result = run(spark, uri, stream, path, checkpoint=checkpoint)
    typer.echo(
        f"{result.records} messages in {result.batches} batches; next offset {result.next_offset}"
    )


def report(
    stream: Annotated[
        str | None, typer.Option("--stream", metavar="STREAM", help="Report on this stream.")
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="Report on this archive.")
    ] = None,
    window: Annotated[
        str, typer.Option("--window", metavar="SPAN", help="The length of a window.")
    ] = "1 minute",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the page there.")
    ] = None,
    master: Master = "local[*]",
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Report the traffic of a stream or an archive, by exchange, routing key and window."""
    if stream is None and path is None:
        raise exits.Failure("name a --stream, or an archive by --path", exits.USAGE)
    with _session("leveret report", master) as spark:
        from leveret.pipelines import report as run

        found = run(
            spark,
            uri=uri if path is None else None,
            stream=stream,
            path=path,
            window=window,
            html_path=html,
        )
    typer.echo(f"{found.messages} messages, {found.bytes} bytes, {found.keys_total} keys")
    for row in found.keys:
        typer.echo(f"{row.messages}\t{row.bytes}\t{row.exchange}\t{row.routing_key}")


@contextmanager
def _session(name: str, master: str) -> Iterator[SparkSession]:
    """Give a Spark session for one job.  Raises: Failure."""
    if importlib.util.find_spec("pyspark") is None:
        text = "a pipeline needs PySpark: pip install 'leveret[spark,jdk]'"
        raise exits.Failure(text, exits.UNAVAILABLE)
    from leveret.spark import session
    from leveret.spark.java import JavaError

    try:
        spark = session(name, master=master, fast=True)
    except JavaError as error:
        raise exits.Failure(str(error), exits.UNAVAILABLE) from None
    try:
        yield spark
    except ValueError as error:
        raise exits.Failure(str(error), exits.USAGE) from None
    finally:
        spark.stop()


def app() -> typer.Typer:
    """Return the group."""
    made = typer.Typer(
        help="Run a Spark job: archive a stream, report its traffic.",
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
    )
    for command in (archive, report):
        made.command()(command)
    return made
