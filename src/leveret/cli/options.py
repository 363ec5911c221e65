"""Options shared by several commands, and functions that read their values."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leveret.cli import exits
from leveret.cli.place import LINE, URI_VARIABLE, BrokerOptions
from leveret.sizes import read_size

if TYPE_CHECKING:
    from leveret.client.uri import Parameters

#: The address of a broker that was started without settings.
DEFAULT_URI = "amqp://guest:guest@localhost:5672/%2F"


def _find_uri(context: typer.Context, value: str) -> str:
    """Return the URI to connect to; for a context's URI, also use the context's TLS files.

    `value` is the value of the option, of its variable, or the default.

    Raises: Failure.
    """
    from leveret.cli.contexts.trust import VARIABLES

    if context.resilient_parsing:
        # A shell completes the line, which names no broker to connect to.
        return value
    source = context.get_parameter_source("uri")
    given = value if source is not None and source.name == "COMMANDLINE" else ""
    uri, found = BrokerOptions(uri=given).find_uri(DEFAULT_URI)
    if given:
        LINE.add(context, BrokerOptions(uri=given))
    for field, variable in VARIABLES.items():
        if path := getattr(found, field):
            set_variable(context, variable, path)
    return uri


def set_variable(context: typer.Context, name: str, value: str) -> None:
    """Set an environment variable until the command ends."""
    before = os.environ.get(name)
    os.environ[name] = value

    def put_back() -> None:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before

    context.call_on_close(put_back)


def uri_option(*names: str, help_text: str) -> Any:
    """Return the option for the parameter `uri`, the broker's address."""
    return typer.Option(
        *names, envvar=URI_VARIABLE, help=help_text, metavar="URI", callback=_find_uri
    )


Uri = Annotated[
    str,
    uri_option("--uri", "-U", help_text="The broker: amqp://user:password@host:port/vhost."),
]


def _size(given: str | int) -> int:
    """Return a size in bytes; a default is already a number.  Raises: BadParameter."""
    if isinstance(given, int):
        return given
    try:
        return read_size(given)
    except ValueError as error:
        raise typer.BadParameter(f"{given!r}: {error}") from None


def size_option(*names: str, help_text: str) -> Any:
    """Return an option that takes a size, with or without a unit."""
    return typer.Option(*names, parser=_size, metavar="SIZE", help=help_text)


#: The format of a time, for error messages.
TIME_FORM: Final = "a time such as 2026-01-31T12:00:00Z, 1970 or later (local without a zone)"


def read_time(text: str) -> datetime | None:
    """Return the time in `text`, in UTC, or None if it is invalid or before 1970.

    A time without a zone is local.
    """
    try:
        time = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        # The conversion to UTC can exceed the range of dates.
        return None
    return time if time.timestamp() >= 0 else None


def read_file(path: Path, bytes_max: int) -> str:
    """Return the text of a file.  Raises: Failure, also if it has more than `bytes_max` bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise exits.Failure(f"cannot read {path}: {error.strerror}", exits.NO_INPUT) from None
    if len(data) > bytes_max:
        text = f"cannot read {path}: it is larger than {bytes_max} bytes"
        raise exits.Failure(text, exits.USAGE)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise exits.Failure(f"cannot read {path}: it is not UTF-8", exits.USAGE) from None


def write_file(path: Path, text: str) -> None:
    """Write `text` to a file; only its owner can read a new file.  Raises: Failure."""
    try:
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        text = f"cannot write {path}: {error.strerror}"
        raise exits.Failure(text, exits.CANNOT_CREATE) from None


def need_empty(path: Path) -> None:
    """Check that a directory does not exist, or is empty.  Raises: Failure."""
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            text = f"{path} exists and is not an empty directory"
            raise exits.Failure(text, exits.USAGE, hint="name a directory that does not exist yet")
    except OSError as error:
        text = f"{path} cannot be used: {error.strerror}"
        raise exits.Failure(text, exits.CANNOT_CREATE) from None


def read_json(text: str) -> object:
    """Return the value of a JSON document.  Raises: ValueError."""
    try:
        found: object = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


def read_uri(uri: str) -> Parameters:
    """Return the connection parameters in a URI.  Raises: Failure."""
    from leveret.client.uri import parse_uri

    try:
        return parse_uri(uri)
    except ValueError as error:
        raise exits.Failure(str(error), exits.USAGE) from None


def read_pairs(pairs: list[str], option: str, *, texts: bool = False) -> dict[str, object]:
    """Return `KEY=VALUE` strings as a table; a value is parsed as JSON if valid, otherwise text.

    With `texts`, every value is text.

    Raises: Failure for a string without `=`, or for a repeated key.
    """
    table: dict[str, object] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise exits.Failure(f"{option} takes KEY=VALUE, not {pair!r}", exits.USAGE)
        if key in table:
            raise exits.Failure(f"{option}: {key!r} is given twice", exits.USAGE)
        table[key] = text if texts else _value(text)
    return table


def _value(text: str) -> object:
    """Return a value: JSON if valid, otherwise text."""
    try:
        return read_json(text)
    except ValueError:
        return text
