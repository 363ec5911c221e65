"""`leveret pipeline archive`: what a stream holds to Parquet."""

from __future__ import annotations

from typing import Annotated

import typer

from leveret.cli import options
from leveret.cli.pipeline import running


def archive(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream to archive.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The archive, a directory.")],
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="What was archived already."),
    ] = None,
    master: running.Master = "local[*]",
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Archive what a stream holds to Parquet, exactly once; a later run adds what came since."""
    with running.session("archive", master) as spark:
        from leveret.pipelines import archive as run

        result = run(spark, uri, stream, path, checkpoint=checkpoint)
    typer.echo(
        f"{result.records} messages in {result.batches} batches; next offset {result.next_offset}"
    )


COMMANDS = (archive,)
