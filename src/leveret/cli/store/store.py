"""`leveret store`: examine a data directory, and salvage a damaged one.

The commands only read the directory.  No broker may run on it, except with `--running`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leveret.cli import exits
from leveret.cli.helping.commands import add, group
from leveret.cli.options import need_empty
from leveret.cli.place import BrokerOptions, Config, DataDir, PlaceGroup
from leveret.cli.printing import output
from leveret.sizes import counted

Directory = Annotated[
    Path | None,
    typer.Argument(metavar="DIR", help="The data directory; by default that of the settings."),
]
Uuid = Annotated[
    str,
    typer.Option("--uuid", metavar="HEX", help="The store's uuid, if the directory has lost it."),
]
Running = Annotated[
    bool, typer.Option("--running", help="Allow a running broker; the end may be cut off.")
]


def check(
    context: typer.Context,
    directory: Directory = None,
    running: Running = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    uuid: Uuid = "",
) -> int:
    """Verify every checksum of a data directory.

    It reports live, dead, damaged and lost data.

    It ends with 0 if everything is intact, 1 if damage was found, 2 if there is no readable store.
    """
    from leveret.cli.store.report import as_object, print_object, print_report
    from leveret.cli.store.work import held, open_store, read_uuid, readable, run_survey
    from leveret.store.survey.survey import Survey

    directory = directory or _directory(context)
    with readable(), held(directory, running=running) as beat:
        disk = open_store(directory, locked=not running)
        survey = Survey(disk, uuid=read_uuid(uuid))
        run_survey(survey, "checking", beat)
        disk.close()
    if as_json:
        print_object(as_object(directory, survey))
    else:
        print_report(directory, survey)
    return exits.NOTHING if survey.damages else exits.OK


def salvage(
    context: typer.Context,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The new directory.")],
    directory: Directory = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    uuid: Uuid = "",
) -> int:
    """Copy the intact data of a damaged data directory.

    A broker can start on the new directory.
    It ends with 0 if nothing was lost, 1 if something was, 2 if there is no readable store.
    """
    from leveret.cli.store.report import as_object, print_lost, print_object
    from leveret.cli.store.work import open_store, read_uuid, readable, run_survey, write_new
    from leveret.store.survey.salvage import Salvage
    from leveret.store.survey.survey import Survey

    directory = directory or _directory(context)
    need_empty(to)
    with readable():
        disk = open_store(directory, locked=True)
        survey = Survey(disk, keep=True, uuid=read_uuid(uuid))
        run_survey(survey, "reading", lambda: None)
        saved = Salvage(survey)
        write_new(saved, to)
        disk.close()
    if as_json:
        found = as_object(directory, survey)
        found |= {"to": str(to), "saved": int(saved.messages), "orphans": saved.orphans}
        print_object(found)
    else:
        output.say(f"{to}: {counted(saved.messages, 'message')}, {counted(saved.bytes, 'byte')}")
        for name in saved.orphans:
            output.say(f"a queue has no definition; its messages are now in {name!r}")
        print_lost(survey)
    return exits.NOTHING if survey.costly else exits.OK


def dump(
    context: typer.Context,
    directory: Directory = None,
    journal: Annotated[bool, typer.Option("--journal", help="The journal.")] = False,
    state: Annotated[bool, typer.Option("--state", help="The snapshots.")] = False,
    segments: Annotated[bool, typer.Option("--segments", help="The chunks.")] = False,
    queue: Annotated[
        str, typer.Option("--queue", metavar="QUEUE", help="Only of this queue (name or id).")
    ] = "",
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Only of this kind.")
    ] = None,
    bodies: Annotated[bool, typer.Option("--bodies", help="Print bodies too.")] = False,
    running: Running = False,
    uuid: Uuid = "",
) -> int:
    """Print the records of a data directory as JSON.

    Without an option for a part, all parts are printed.
    """
    from leveret.cli.store.dump import print_dump
    from leveret.cli.store.work import open_store, read_uuid, readable

    directory = directory or _directory(context)
    everything = not (journal or state or segments)
    parts = [
        name
        for name, wanted in (("state", state), ("journal", journal), ("segments", segments))
        if wanted or everything
    ]
    with readable():
        disk = open_store(directory, locked=not running)
        print_dump(disk, read_uuid(uuid), parts, queue, kind or [], bodies)
        disk.close()
    return exits.OK


def _where(context: typer.Context, data_dir: DataDir = None, config: Config = None) -> None:
    """Check, salvage or print a data directory."""
    context.obj = BrokerOptions(data_dir, config)


def _directory(context: typer.Context) -> Path:
    """Return the data directory that the settings name.  Raises: Failure."""
    place: BrokerOptions = context.obj
    return place.settings().data_dir


def app() -> typer.Typer:
    """Return the group."""
    made = group(cls=PlaceGroup)
    made.callback()(_where)
    for command in (check, salvage, dump):
        add(made, command)
    return made
