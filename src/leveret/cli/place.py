"""Which broker a command is for: one on this machine, or one on another by its HTTP API.

A broker on this machine is named by its data directory or its settings file, another by the address
of its API or by a context.  The options may stand anywhere behind `leveret`: before the command
(`root.py`), behind its group's name, or at the end of the line.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leveret.cli import exits
from leveret.cli.contexts.kept import Context, chosen
from leveret.cli.contexts.remote import API_VARIABLE, Remote
from leveret.cli.suggesting import SafeGroup

if TYPE_CHECKING:
    from leveret.config import Settings

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="PATH", help="The broker's data directory."),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="PATH", help="The broker's settings file.")
]
Api = Annotated[
    str,
    typer.Option("--api", "-A", metavar="URL", help="The broker's HTTP API: https://host:15671."),
]
ContextName = Annotated[
    str, typer.Option("--context", metavar="NAME", help="A broker of `leveret context`.")
]

#: Options of a group that name a broker, wherever they stand; the first two one of this machine.
_HERE: Final = ("--data-dir", "--config")
_OPTIONS: Final = (*_HERE, "--api", "-A", "--context")

#: Variables of the environment that name a broker of this machine.
_HERE_VARIABLES: Final = ("LEVERET_DATA_DIR", "LEVERET_CONFIG_FILE")


@dataclass(frozen=True)
class Place:
    """What the options of a command say of its broker; what is empty is not said."""

    data_dir: Path | None = None
    config: Path | None = None
    api: str = ""
    context: str = ""

    @property
    def is_here(self) -> bool:
        """Whether the options name a broker of this machine."""
        return self.data_dir is not None or self.config is not None

    def find_api(self) -> Path | Remote:
        """Return the API that is meant: a Unix socket, or an address.

        Options come before the environment, and that before the current context; in each an address
        comes before a context, and that before a broker of this machine.

        Raises: Failure.
        """
        if self.is_here and (self.api or self.context):
            text = "--data-dir and --config name a broker of this machine: without --api, --context"
            raise exits.Failure(text, exits.USAGE)
        if self.is_here:
            return find_socket(self.data_dir, self.config)
        if api := self.api or ("" if self.context else os.environ.get(API_VARIABLE, "")):
            # Of a context that is named beside it, it takes the rest.
            beside = chosen(self.context) if self.context else None
            return Remote.of(replace(beside or Context(), api=api))
        if not self.context and any(os.environ.get(name) for name in _HERE_VARIABLES):
            return find_socket(None, None)
        context = chosen(self.context)
        if context is None:
            return find_socket(None, None)
        if not context.api:
            raise exits.Failure("the context has no `api`: set it, or give --api", exits.CONFIG)
        return Remote.of(context)


class PlaceGroup(SafeGroup):
    """A group whose commands take the group's options that name a broker as well."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, those options first wherever they stand before a `--`."""
        return super().parse_args(ctx, _place_first(args))


def _place_first(args: list[str]) -> list[str]:
    """Return the arguments with the options that name a place, and their values, at the front."""
    place: list[str] = []
    rest: list[str] = []
    left = iter(args)
    for arg in left:
        if arg == "--":
            rest += [arg, *left]
        elif arg in _OPTIONS:
            place += [arg, *islice(left, 1)]
        elif arg.startswith(tuple(f"{option}=" for option in _OPTIONS)):
            place.append(arg)
        else:
            rest.append(arg)
    return place + rest


def find_socket(data_dir: Path | None, config: Path | None) -> Path:
    """Return the broker's socket, by the same settings as its own.  Raises: Failure."""
    return read_settings(data_dir, config).management_socket


def read_settings(data_dir: Path | None, config: Path | None) -> Settings:
    """Return the settings of the broker that is meant.  Raises: Failure."""
    from leveret.config import ConfigError, load

    flags = {"data_dir": data_dir, "config_file": config}
    try:
        return load({name: value for name, value in flags.items() if value is not None})
    except ConfigError as error:
        raise exits.Failure("", exits.CONFIG, *error.lines) from None
