"""Print rows in the formats of RabbitMQ's tools: tab-separated fields, JSON, CSV, or a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from leveret.cli.printing import output
from leveret.cli.rabbitmqctl.options import CommandLine

#: Backslashes in fields are doubled, because control characters are escaped with a backslash.
_ESCAPED_BACKSLASH: Final = ("\\", "\\\\")


def print_rows(
    line: CommandLine, rows: Sequence[Mapping[str, object]], columns: Sequence[str]
) -> None:
    """Print columns of the rows in the format that the command line selects."""
    if line.formatter == "json":
        output.say_json([{column: row.get(column) for column in columns} for row in rows])
    elif line.formatter == "csv":
        _print_csv(line, rows, columns)
    elif line.formatter == "pretty_table":
        from leveret.cli.printing.rows import print_rows as print_table

        texts = [{column: cell(row.get(column)) for column in columns} for row in rows]
        print_table(texts, columns, "table")
    else:
        # As in RabbitMQ's tools, column names are printed only if there are rows.
        if rows and line.headers:
            output.say_columns(*columns)
        for row in rows:
            cells = [cell(row.get(column)).replace(*_ESCAPED_BACKSLASH) for column in columns]
            output.say_columns(*cells)


def _print_csv(
    line: CommandLine, rows: Sequence[Mapping[str, object]], columns: Sequence[str]
) -> None:
    """Print rows as comma-separated values."""
    wanted = [list(columns)] if rows and line.headers else []
    wanted += [[cell(row.get(column)) for column in columns] for row in rows]
    for fields in wanted:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(fields)
        output.say(text.getvalue())


def cell(value: object) -> str:
    """Return the text of a value as RabbitMQ's tools print it in a column."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"[{','.join(f'{{{term(key)},{term(inner)}}}' for key, inner in value.items())}]"
    if isinstance(value, list):
        return f"[{', '.join(cell(inner) for inner in value)}]"
    return str(value)


def term(value: Any) -> str:
    """Return an inner value as an Erlang term, with strings in quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{','.join(term(inner) for inner in value)}]"
    return "undefined" if value is None else cell(value)
