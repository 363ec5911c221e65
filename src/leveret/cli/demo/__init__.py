"""`leveret demo`: publish real log lines, crash the broker meanwhile, and check all counts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from leveret.cli import exits
from leveret.cli.helping.commands import single

Input = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="DIR",
        help="Text files whose lines are the messages, such as /var/log (default: logs shipped "
        "with Leveret).",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="DIR",
        help="Keep data, archive, logs and report there (default: only the report is kept).",
    ),
]
WithoutSpark = Annotated[
    bool, typer.Option("--without-spark", help="Omit the archive and the report.")
]


def demo(input_: Input = None, output: Output = None, without_spark: WithoutSpark = False) -> int:
    """Show all parts at work, in half a minute.

    It publishes log lines through a broker that is killed meanwhile, archives them and reports on
    them. It ends with 0 only if all checks hold: no line is lost, altered or invented.
    """
    if not without_spark and importlib.util.find_spec("pyspark") is None:
        text = (
            "the demo needs PySpark (in a checkout of Leveret: pip install '.[spark,jdk]'), "
            "or --without-spark"
        )
        raise exits.Failure(text, exits.SYSTEM)
    from leveret.cli.demo.run import run

    return run(input_, output, spark=not without_spark)


def app() -> typer.Typer:
    """Return the command."""
    return single("demo", demo)
