"""Print rows as a table for people, or as JSON or tab-separated values for programs."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from leveret.cli import exits
from leveret.cli.printing import output
from leveret.escaping import escaped

Row = Mapping[str, object]

#: The fields of the HTTP API that are times in ms since 1970.
_TIMES = {"connected_at", "due", "timestamp"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def print_rows(
    rows: Sequence[Row], columns: Sequence[str] | None, form: Literal["table", "json", "tsv"]
) -> None:
    """Print `columns` of all rows, by default all fields.  Raises: Failure."""
    rows = [with_times(row) for row in rows]
    chosen = columns or list(rows[0] if rows else ())
    for column in chosen:
        if rows and not any(holds(row, column) for row in rows):
            raise _no_column(column, rows)
    if form == "json":
        shown = [{column: field(row, column) for column in chosen} for row in rows]
        output.say_json(shown if columns else rows)
    elif form == "tsv":
        output.say_columns(*chosen)
        for row in rows:
            # Backslashes are doubled, so that a program can reverse the escapes.
            cells = [text(field(row, column)).replace("\\", "\\\\") for column in chosen]
            output.say_columns(*cells)
    else:
        _print_table(rows, chosen)


def with_times(row: Row) -> Row:
    """Return a row of the HTTP API with its times converted from ms since 1970 to ISO 8601."""
    return {name: _time(value) if name in _TIMES else value for name, value in row.items()}


def _time(ms: object) -> object:
    """Return a time as `2026-11-22T18:00:00.000Z`, or unchanged if it is not a valid date."""
    if not isinstance(ms, int):
        return ms
    try:
        time = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return ms
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _no_column(column: str, rows: Sequence[Row]) -> exits.Failure:
    """Return the failure for a column that no row has, with similar and known names."""
    known = list(dict.fromkeys(name for row in rows for name in _names(row)))
    near = difflib.get_close_matches(column, known, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    text = f"unknown column {column!r}{hint}"
    return exits.Failure(text, exits.USAGE, f"known columns: {', '.join(known)}")


def _names(row: Row) -> Iterator[str]:
    """Yield the column names of a row, such as `queue.name` for a field of an inner object."""
    for name, value in row.items():
        if isinstance(value, Mapping) and value:
            yield from (f"{name}.{inner}" for inner in _names(value))
        else:
            yield name


def holds(row: Row, column: str) -> bool:
    """Return whether a row has a field, such as `name` or `queue.name`."""
    head, _, rest = column.partition(".")
    if column in row:
        return True
    inner = row.get(head)
    return bool(rest) and isinstance(inner, Mapping) and holds(inner, rest)


def field(row: Row, column: str) -> object:
    """Return a field of a row, or None if it is missing."""
    if column in row:
        return row[column]
    head, _, rest = column.partition(".")
    inner = row.get(head)
    return field(inner, rest) if rest and isinstance(inner, Mapping) else None


def text(value: object) -> str:
    """Return the text of a cell for a value."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print a table, with numbers aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    from leveret.cli.printing.console import StandardOutput

    def cell(shown: str) -> Text:
        # Not markup, since names can contain brackets.
        return Text(escaped(shown))

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numbers = all(isinstance(field(row, column), int) for row in rows)
        table.add_column(
            cell(column), justify="right" if rows and numbers else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*[cell(text(field(row, column))) for column in columns])

    StandardOutput().print(table)
