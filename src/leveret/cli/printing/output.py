"""The functions that print the output of commands.

They escape all text (`escaping`), since names from a broker, a message or a file could contain line
feeds or move the cursor.  Escaped JSON has the same value.
"""

from __future__ import annotations

import json
import os
import sys

import typer

from leveret.escaping import escaped, escaped_json


def say(text: str, *, err: bool = False) -> None:
    """Print a line on standard output, or on standard error."""
    typer.echo(escaped(text), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print text of several lines."""
    for line in text.splitlines():
        say(line, err=err)


def say_columns(*fields: object) -> None:
    """Print a line of fields with tabs between them."""
    typer.echo("\t".join(escaped(str(field)) for field in fields))


def put_json(value: object) -> None:
    """Write a value as a line of JSON without a flush, for many values."""
    sys.stdout.write(escaped_json(json.dumps(value, ensure_ascii=False)) + "\n")


def say_json(value: object, *, indent: int | None = None) -> None:
    """Print a value as JSON: in one line, or indented."""
    typer.echo(escaped_json(json.dumps(value, ensure_ascii=False, indent=indent)))


def announce(text: str) -> None:
    """Print and flush a line; ignore errors, since the log contains it, too."""
    try:
        sys.stdout.write(escaped(text) + "\n")
        sys.stdout.flush()
    except OSError:
        # Otherwise, flushing the rest of the buffer would fail again at exit.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
