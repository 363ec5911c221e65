"""Options that several commands share, and the reading of their values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leveret.cli import exits
from leveret.sizes import read_size

if TYPE_CHECKING:
    from leveret.client.uri import Parameters

#: Where a broker started without settings listens.
DEFAULT_URI = "amqp://guest:guest@localhost:5672/%2F"

Uri = Annotated[
    str,
    typer.Option(
        "--uri",
        "-U",
        envvar="LEVERET_URI",
        help="The broker: amqp://user:password@host:port/vhost.",
        metavar="URI",
    ),
]


def _size(given: str | int) -> int:
    """Return the bytes that a text means; a default is a number.  Raises: BadParameter."""
    if isinstance(given, int):
        return given
    try:
        return read_size(given)
    except ValueError as error:
        raise typer.BadParameter(f"{given!r}: {error}") from None


def size_option(*names: str, help_text: str) -> Any:
    """Return an option that takes a size, with or without a unit."""
    return typer.Option(*names, parser=_size, metavar="SIZE", help=help_text)


def read_uri(uri: str) -> Parameters:
    """Return the parameters of a connection.  Raises: Failure."""
    from leveret.client.uri import parse_uri

    try:
        return parse_uri(uri)
    except ValueError as error:
        raise exits.Failure(str(error), exits.USAGE) from None


def read_pairs(pairs: list[str], option: str, *, texts: bool = False) -> dict[str, object]:
    """Return `KEY=VALUE` texts as a table; a value that is JSON is read so, another is text.

    With `texts` every value is text.

    Raises: Failure for a text without `=`, or a key that comes twice.
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
    """Return a value: JSON where it is JSON."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value
