"""`leveret pipeline archive`: archive streams to Parquet, Delta or Iceberg."""

from __future__ import annotations

from typing import Annotated

import typer

from leveret.cli import exits, options
from leveret.cli.pipeline import running
from leveret.cli.printing import output
from leveret.sizes import counted


def archive(
    stream: Annotated[
        str, typer.Argument(metavar="STREAM", help="The stream, or several with commas.")
    ],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The archive, a directory.")],
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="parquet, delta or iceberg.")
    ] = "parquet",
    partition_by: Annotated[
        str, typer.Option("--partition-by", metavar="UNIT", help="A directory per date, or hour.")
    ] = "date",
    table: Annotated[
        str, typer.Option("--table", metavar="NAME", help="The Iceberg table's name.")
    ] = "",
    catalog: Annotated[
        str, typer.Option("--catalog", metavar="NAME", help="The Iceberg table's catalog.")
    ] = "",
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="The progress of earlier runs."),
    ] = None,
    html: running.Html = None,
    master: running.Master = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Archive streams. A later run adds the new messages, exactly once."""
    with running.session("archive", master) as spark:
        from leveret.pipelines import archive as run

        try:
            result = run(
                spark,
                uri,
                stream.split(",") if "," in stream else stream,
                path,
                format=format_,
                partition_by=partition_by,
                table=table,
                catalog=catalog,
                checkpoint=checkpoint,
                html_path=html,
                options=running.trusted(uri),
                progress=running.say,
            )
        except ImportError as error:
            raise exits.Failure(str(error), exits.SYSTEM) from None
    ends = ", ".join(f"{name} {offset}" for name, offset in sorted(result.next_offsets.items()))
    if "," not in stream:
        ends = str(result.next_offset)
    batches = counted(result.batches, "batch", "batches")
    output.say(f"{counted(result.records, 'message')} in {batches}; next offset {ends}")


COMMANDS = (archive,)
