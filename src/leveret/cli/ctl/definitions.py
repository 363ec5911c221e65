"""Definitions: all declared and configured objects, in RabbitMQ's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from leveret.cli.ctl.asking import json_of, target
from leveret.cli.helping.completing import vhost_names
from leveret.cli.options import read_file, write_file
from leveret.cli.printing import output
from leveret.sizes import counted

#: The largest accepted file; the limit of `management.bodies`, which is slow to import.
_FILE_BYTES_MAX: Final = 20 * 1024 * 1024

OneVhost = Annotated[
    str,
    typer.Option(
        "--vhost", "-p", metavar="VHOST", autocompletion=vhost_names, help="Only of this vhost."
    ),
]


def export_definitions(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(metavar="FILE")] = None,
    vhost: OneVhost = "",
) -> None:
    """Print the definitions, or write them to a file.

    They include the hashes of passwords.
    """
    found = target(context).ask("GET", "definitions", *((vhost,) if vhost else ()))
    if file is None:
        output.say_json(found, indent=1)
        return
    # Only its owner can read the file, because passwords can be guessed from their hashes.
    write_file(file, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def import_definitions(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    vhost: OneVhost = "",
) -> None:
    """Add the definitions in a file to the existing ones.

    On an error, none is added.
    """
    body = json_of(read_file(file, _FILE_BYTES_MAX), str(file))
    found = target(context).ask("POST", "definitions", *((vhost,) if vhost else ()), body=body)
    assert isinstance(found, dict)
    for note in found["left_out"]:
        output.say(f"left out: {note}", err=True)
    for note in found.get("without_effect", []):
        output.say(f"kept without effect: {note}", err=True)
    changed = [counted(count, _one_of(what), what) for what, count in found["changed"].items()]
    output.say(", ".join(changed) or "no change")


def _one_of(what: str) -> str:
    """Return the singular of a kind of definition, such as `queue` or `policy`."""
    return f"{what[:-3]}y" if what.endswith("ies") else what[:-1]


COMMANDS: Final = (export_definitions, import_definitions)
