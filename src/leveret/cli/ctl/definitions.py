"""Definitions: all that was declared and set, as RabbitMQ's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from leveret.cli import exits
from leveret.cli.ctl.asking import json_of, target

OneVhost = Annotated[str, typer.Option("--vhost", "-p", help="Only this vhost's.")]


def export_definitions(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]")] = None,
    vhost: OneVhost = "",
) -> None:
    """Write the definitions to a file, or print them; they hold password hashes."""
    found = target(context).ask("GET", "definitions", *((vhost,) if vhost else ()))
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if file is None:
        typer.echo(text, nl=False)
        return
    try:
        # Made for its owner alone: hashes can be guessed at.
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise exits.Failure(f"cannot write {file}: {error.strerror}", exits.NO_INPUT) from None


def import_definitions(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    vhost: OneVhost = "",
) -> None:
    """Add the definitions of a file to what is there, all or nothing."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise exits.Failure(f"cannot read {file}: {error}", exits.NO_INPUT) from None
    body = json_of(text, str(file))
    found = target(context).ask("POST", "definitions", *((vhost,) if vhost else ()), body=body)
    assert isinstance(found, dict)
    for note in found["left_out"]:
        typer.echo(f"left out: {note}", err=True)
    for note in found.get("without_effect", []):
        typer.echo(f"kept without effect: {note}", err=True)
    typer.echo(", ".join(f"{count} {what}" for what, count in found["changed"].items()) or "same")


COMMANDS: Final = (export_definitions, import_definitions)
