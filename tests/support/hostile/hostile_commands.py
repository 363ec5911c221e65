"""Hostile arguments of `leveret ctl`, made from the commands themselves.

Each command has a valid value for each of its parameters, by the parameter's name.  A case is a
command with one or several of them made hostile.  The commands run in this process, against a
broker's real socket.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import typer
from typer.testing import CliRunner

from leveret.cli import ctl
from leveret.cli.root import app
from support.hostile.hostile_values import HUGE_TEXTS, JSON_VALUES, LONG_TEXTS, SHORT_TEXTS

#: The definitions file to import.
_FILE: Final = Path(__file__).parents[2] / "broker" / "definitions" / "rabbitmq_3_10_8.json"

#: Valid values of parameters, by name, or by command and name.
GOOD: Final[dict[str, str]] = {
    "user": "u", "password": "secret", "tags": "a", "limits": '{"max-connections": 5}',
    "limit": "max-channels", "vhost": "h", "description": "d", "default_queue_type": "classic",
    "configure": ".*", "write": ".*", "read": ".*", "exchange": "e", "name": "n", "pattern": "^x",
    "definition": '{"max-length": 5}', "priority": "1", "apply_to": "queues", "value": "{}",
    "component": "vhost-limits", "queue": "q", "since": "5", "count": "5", "position": "0",
    "routing_key": "#", "headers": "{}", "message": "1", "form": "json", "file": str(_FILE),
    "columns": "name",
    "publisher": "p", "stream": "s", "consumer": "c", "sink": "sink", "destination": "d",
    "connection": "c", "reason": "r", "per_connection_delay": "0",
    "close_all_connections limit": "1",
    "add_user user": "new", "add_vhost vhost": "new",
    "rewind_queue queue": "kept", "move_messages destination": "kept", "died_in": "q",
    "set_parameter name": "limits", "set_parameter value": '{"max-queues": 500}',
}  # fmt: skip

#: Commands that, with valid arguments, would delete objects that the other cases need.
_ENDING: Final = ("delete_user", "delete_vhost", "delete_queue")

#: JSON as an argument; most of it is also tried over HTTP by `hostile_requests`.
_JSON_TEXTS: Final = tuple(
    json.dumps(value)
    for value in JSON_VALUES[:40] + JSON_VALUES[-35:]
    if len(json.dumps(value)) < 10_000
)

TEXTS: Final = (
    *(text for text in SHORT_TEXTS if "\0" not in text), *LONG_TEXTS[:3], "\udcff",
    "\udced\udca0\udc80",
    "9" * 17, "9" * 20, "9" * 5_000, "0001-01-01", "9999-12-31T23:59:59", "--", "-", "@",
    *_JSON_TEXTS,
    '{"max-connections": 5, "max-cows": 1}', '{"max-connections": 99999999999999999999}', "{",
    "NaN",
    "[" * 5_000,
)  # fmt: skip

#: A command with its arguments.
Case = tuple[str, ...]


def commands() -> dict[str, Any]:
    """The commands of `leveret ctl` by name."""
    group: Any = typer.main.get_command(ctl.app())
    return dict(group.commands)


def uncovered() -> list[str]:
    """The parameters without a valid value."""
    return [
        f"{name} {one.name}"
        for name, command in commands().items()
        for one in _parameters(command)
        if one.name not in GOOD and f"{name} {one.name}" not in GOOD
    ]


def _parameters(command: Any) -> list[Any]:
    """The parameters that take a value, without output files, so that no file is overwritten."""
    return [
        one
        for one in command.params
        if one.name != "help"
        and not getattr(one, "is_flag", False)
        and (one.name != "file" or one.required)
    ]


def _line(name: str, command: Any, changed: dict[str, str]) -> Case:
    """A command with valid arguments, except for the changed ones."""
    options: list[str] = []
    places: list[str] = []
    for one in _parameters(command):
        value = changed.get(one.name, GOOD.get(f"{name} {one.name}", GOOD.get(one.name, "")))
        if one.param_type_name == "option":
            options.append(f"{one.opts[0]}={value}")
        else:
            places.append(value)
    return (name, *options, "--", *places)


def cases() -> list[Case]:
    """All cases with one hostile argument."""
    made: list[Case] = []
    for name, command in commands().items():
        if name not in _ENDING:
            made.append(_line(name, command, {}))
        for one in _parameters(command):
            texts = (*TEXTS, *HUGE_TEXTS) if name == "set_global_parameter" else TEXTS
            made += [_line(name, command, {one.name: text}) for text in texts if one.name != "file"]
    return made


def mixed(random_: random.Random, count: int) -> list[Case]:
    """Cases with several hostile arguments."""
    known = commands()
    made: list[Case] = []
    while len(made) < count:
        name = random_.choice(list(known))
        changed = {
            one.name: random_.choice(TEXTS)
            for one in _parameters(known[name])
            if random_.random() < 0.5 and one.name != "file"
        }
        if name not in _ENDING or changed:
            made.append(_line(name, known[name], changed))
    return made


def is_one_line(said: str) -> bool:
    """Return whether an error is one line, beside its hint."""
    lines = said.removesuffix("\n").split("\n")
    return len([line for line in lines if not line.startswith("leveret: hint: ")]) == 1


def run_command(data_dir: Path, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run a command; return its exit code, output and error output.

    Raises: any exception that the command does not handle, which is a fault.
    """
    environment = {"LEVERET_DATA_DIR": str(data_dir)}
    done = CliRunner().invoke(app, ["ctl", *arguments], input="{}\n", env=environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr
