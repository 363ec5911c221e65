"""`leveret serve`: run a broker until SIGTERM or SIGINT.

The flags are created from the settings, with the settings' descriptions as help.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from leveret.cli import exits
from leveret.cli.place import BrokerOptions
from leveret.config import ConfigError, Setting, describe_settings, load

_HELP = """Run a broker until SIGTERM or SIGINT.

It prints its address, and "Server startup complete" when it accepts connections.
"""


def serve(**flags: object) -> int:
    """Run a broker; return the exit code.  Raises: Failure."""
    before = BrokerOptions().checked()
    options = {"data_dir": before.data_dir, "config_file": before.config} | {
        name: value for name, value in flags.items() if value is not None
    }
    given = {name: value for name, value in options.items() if value is not None}
    try:
        settings = load(given)
    except ConfigError as error:
        raise exits.Failure("", exits.CONFIG, *error.lines) from None
    import_broker()
    from leveret.cli.serving.process import run

    return run(settings, read=lambda: load(given))


def import_broker() -> None:
    """Import the broker's modules, which take most of the CPU time of a start."""
    with _absent("rich"):
        importlib.import_module("leveret.cli.serving.process")


@contextmanager
def _absent(package: str) -> Iterator[None]:
    """Make imports of `package` fail, unless it is already imported.

    structlog imports rich for coloured tracebacks, which a broker does not use and which take a
    quarter of its start time.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


def app() -> typer.Typer:
    """Return the command, with a flag for each setting."""
    # typer creates options from a function's signature; this one has a parameter per setting.
    parameters = [_parameter(setting) for setting in describe_settings() if setting.flag]
    serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    serve.__annotations__ = {p.name: p.annotation for p in parameters}
    made = typer.Typer(rich_markup_mode=None, add_completion=False)
    made.command("serve", help=_HELP)(serve)
    return made


def _parameter(setting: Setting) -> inspect.Parameter:
    """Return the parameter for a setting's flag; its default, None, means "not given"."""
    # A path may contain any bytes; other values must be UTF-8.
    kind: Any = Path | None if setting.kind == "path" else str | None
    names = [setting.flag]
    text = setting.description.replace("`", "")
    if setting.kind == "true | false":
        kind = bool | None
        names = [f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"]
    if setting.default:
        text += f" [default: {setting.default}]"
    option = typer.Option(*names, help=text, show_default=False, metavar=_metavar(setting) or None)
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )


def _metavar(setting: Setting) -> str:
    """Return the placeholder for the value in the help."""
    if setting.kind == "true | false":
        return ""
    return setting.kind.replace(" | ", "|") if "|" in setting.kind else setting.kind.upper()
