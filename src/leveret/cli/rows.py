"""Printing rows: a table for people, JSON and tab-separated values for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

import typer

from leveret.cli import exits

Row = Mapping[str, object]

#: What would break a line or a column of tab-separated values.
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

_PIPE_COLUMNS = 100_000


def print_rows(
    rows: Sequence[Row], columns: Sequence[str] | None, form: Literal["table", "json", "tsv"]
) -> None:
    """Print `columns` of all rows, or all that they hold.  Raises: Failure."""
    chosen = columns or list(rows[0] if rows else ())
    for column in chosen:
        if rows and not any(holds(row, column) for row in rows):
            raise exits.Failure(f"there is no column {column!r}", exits.USAGE)
    if form == "json":
        shown = [{column: field(row, column) for column in chosen} for row in rows]
        typer.echo(json.dumps(shown if columns else rows, ensure_ascii=False))
    elif form == "tsv":
        typer.echo("\t".join(chosen))
        for row in rows:
            typer.echo("\t".join(text(field(row, c)).translate(_ESCAPES) for c in chosen))
    else:
        _print_table(rows, chosen)


def holds(row: Row, column: str) -> bool:
    """Tell whether a row has a field; a dot leads into an object."""
    head, _, rest = column.partition(".")
    if column in row:
        return True
    inner = row.get(head)
    return bool(rest) and isinstance(inner, Mapping) and holds(inner, rest)


def field(row: Row, column: str) -> object:
    """Return a field of a row, None where it has none."""
    if column in row:
        return row[column]
    head, _, rest = column.partition(".")
    inner = row.get(head)
    return field(inner, rest) if rest and isinstance(inner, Mapping) else None


def text(value: object) -> str:
    """Return a value as a cell."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print a table, its numbers at the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numbers = all(isinstance(field(row, column), int) for row in rows)
        table.add_column(column, justify="right" if rows and numbers else "left", overflow="fold")
    for row in rows:
        # Text, not markup: names hold what they like.
        table.add_row(*[Text(text(field(row, column))) for column in columns])
    # Into a pipe a row is one line, however long.
    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    console.print(table)
