"""The top of the command: what commands there are, and how each of them ends.

Invariants: a command's module is imported only when the command, its help or all commands are asked
for; a failure is told in lines on standard error, never by a traceback.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Final, cast

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from leveret.cli import exits

#: The commands and the modules that hold them, in the order of the help.
COMMANDS: Final = {
    "serve": "leveret.cli.serve",
    "declare": "leveret.cli.declare",
    "publish": "leveret.cli.publish",
    "consume": "leveret.cli.consume",
    "get": "leveret.cli.get",
    "list": "leveret.cli.listing",
    "ctl": "leveret.cli.ctl",
    "backup": "leveret.cli.backup",
    "restore": "leveret.cli.restore",
    "store": "leveret.cli.store",
    "perf": "leveret.cli.perf",
    "pipeline": "leveret.cli.pipeline",
    "demo": "leveret.cli.demo",
}

#: What click gives to a wrong command line.
_CLICK_USAGE: Final = 2


Command = TyperCommand | TyperGroup


class Commands(MutableMapping[str, Any]):
    """The commands by name, each imported when it is first asked for."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places
        self._loaded: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        """Return a command.  Raises: KeyError."""
        if name not in self._loaded:
            module = importlib.import_module(self._places[name])
            self._loaded[name] = command_of(module.app())
            self._loaded[name].name = name
        return self._loaded[name]

    def __setitem__(self, name: str, command: Command) -> None:
        """Add a command."""
        self._places.setdefault(name, "")
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        """Remove a command."""
        del self._places[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def command_of(app: typer.Typer) -> Command:
    """Return the command that an app of one makes, or the group of an app of several."""
    return cast("Command", typer.main.get_command(app))


class Root(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands(dict(COMMANDS))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that `args` name and exit with its code."""
        if not standalone_mode:
            return super().main(
                args, prog_name, complete_var, standalone_mode, windows_expand_args, **extra
            )
        sys.exit(self._code(args, prog_name, complete_var, extra))

    def _code(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        """Run a command; return the exit code."""
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except exits.Failure as failure:
            for line in str(failure).splitlines():
                typer.echo(f"leveret: {line}", err=True)
            return failure.code
        except typer.Abort:
            return exits.INTERRUPTED
        except typer.TyperException as error:
            show = getattr(error, "show", None)
            if show is not None:
                show()
            code: int = error.exit_code
            return exits.USAGE if code == _CLICK_USAGE else code
        return result if isinstance(result, int) else exits.OK


app = typer.Typer(
    name="leveret",
    cls=Root,
    help="Leveret, an AMQP 0-9-1 message broker whose streams are tables to Spark.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def version_text() -> str:
    """Return version and build, judged by what was loaded: `leveret 0.1.0 (compiled, Python …)`."""
    import platform

    from leveret import __version__
    from leveret.wire.buffer import COMPILED

    build = "compiled" if COMPILED else "pure"
    return f"leveret {__version__} ({build}, Python {platform.python_version()})"


def _print_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        typer.echo(version_text())
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print version and build."
    ),
    data_dir: str = typer.Option(
        "", metavar="PATH", help="The broker's data directory, for every command that needs it."
    ),
    config: str = typer.Option(
        "", metavar="PATH", help="The broker's settings file, for every command that needs it."
    ),
    uri: str = typer.Option(
        "", "--uri", "-U", metavar="URI", help="The broker, for every command that connects."
    ),
) -> None:
    """Leveret, an AMQP 0-9-1 message broker whose streams are tables to Spark."""
    given = {"LEVERET_DATA_DIR": data_dir, "LEVERET_CONFIG_FILE": config, "LEVERET_URI": uri}
    for variable, value in given.items():
        if value:
            _set_variable(context, variable, value)


def _set_variable(context: typer.Context, name: str, value: str) -> None:
    """Have an option before the command count as its variable of the environment, until the end."""
    before = os.environ.get(name)
    os.environ[name] = value

    def put_back() -> None:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before

    context.call_on_close(put_back)


def main() -> None:
    """Run the command line of this process."""
    # The name also where it was started by `python -m leveret`.
    app(prog_name="leveret")
