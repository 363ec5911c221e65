"""`leveret rabbitmqctl COMMAND`: parse a command line like RabbitMQ's tools, and run it."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from leveret.cli import exits
from leveret.cli.helping.commands import HELP_NAMES, single
from leveret.cli.printing import output

#: Makes typer pass on all options, which RabbitMQ's tools accept before and after the command, so
#: that `alias rabbitmqctl=…` works.
_SETTINGS: Final = {
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "help_option_names": HELP_NAMES,
}

#: A file name that means standard input or output.
_STREAM: Final = "-"
_STANDARD_INPUT: Final = "/dev/stdin"


def rabbitmqctl(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT", show_default=False)
    ] = None,
) -> int:
    """Run a command of rabbitmqctl, for scripts.

    Those of rabbitmq-diagnostics are included; `leveret rabbitmqctl help` lists all of them.
    """
    from leveret.cli.ctl.asking import BrokerAddress
    from leveret.cli.rabbitmqctl.options import read_line
    from leveret.cli.rabbitmqctl.table import ASKING, ELSEWHERE, SAME

    line = read_line(words or [])
    if line.command in {"", "help"}:
        _print_help()
        return exits.OK if line.command else exits.USAGE
    if line.command in ELSEWHERE:
        text = f"{line.command} has no counterpart here: {ELSEWHERE[line.command]}"
        raise exits.Failure(text, exits.USAGE)
    if line.command not in SAME and line.command not in ASKING:
        raise _unknown(line.command, [*ASKING, *SAME])
    line.seconds(0.0)
    if "dry_run" in line.flags:
        output.say(f"would run {line.command}")
        return exits.OK
    context.obj = BrokerAddress(line.place())
    if line.command in ASKING:
        return ASKING[line.command](line, context.obj)
    _run_same(context, line.command, line.values.get("vhost"), line.arguments)
    return exits.OK


def _run_same(context: typer.Context, name: str, vhost: str | None, arguments: list[str]) -> None:
    """Run the command of `leveret ctl` with the same name.  Raises: the command's exceptions."""
    from leveret.cli.root import COMMANDS, load

    group: Any = load("ctl", COMMANDS["ctl"])
    command = group.commands[name]
    given = _with_streams(name, arguments)
    options = [o for p in command.params if p.param_type_name == "option" for o in p.opts]
    if vhost is not None:
        if "--vhost" not in options:
            raise exits.Failure(f"{name} takes no vhost (-p)", exits.USAGE)
        given = [f"--vhost={vhost}", *given]
    inner = command.make_context(name, given, parent=context)
    with inner:
        command.invoke(inner)


def _with_streams(name: str, arguments: list[str]) -> list[str]:
    """Return the arguments, with the file name `-` replaced by standard input or output."""
    files = [word for word in arguments if word != "--"]
    if name == "export_definitions" and files == [_STREAM]:
        return []
    if name == "import_definitions" and files in ([], [_STREAM]):
        if not Path(_STANDARD_INPUT).exists():
            raise exits.Failure("import_definitions needs a file", exits.USAGE)
        return [_STANDARD_INPUT]
    return arguments


def _unknown(name: str, known: list[str]) -> exits.Failure:
    """Return the failure for an unknown command; it never suggests a destructive command."""
    harmless = [one for one in known if one.startswith(("list_", "check_", "add_", "set_"))]
    near = difflib.get_close_matches(name, harmless, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return exits.Failure(f"no such command {name!r}{hint}", exits.USAGE)


def _print_help() -> None:
    """Print the commands."""
    from leveret.cli.rabbitmqctl.table import ASKING, SAME

    output.say("Supported commands of rabbitmqctl and rabbitmq-diagnostics:")
    for name in sorted([*ASKING, *SAME]):
        output.say(f"  {name}")
    output.say("Options: -p VHOST, -q, -s, --formatter table|pretty_table|json|csv,")
    output.say("  --no-table-headers, -n NODE, -t SECONDS, --dry-run, and those of leveret ctl")


def app() -> typer.Typer:
    """Return the command."""
    return single("rabbitmqctl", rabbitmqctl, context_settings=_SETTINGS)
