"""`leveret publish`: publish messages from the command line, a file or stdin, with confirms."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from leveret.cli import exits, options
from leveret.cli.helping.commands import single
from leveret.cli.helping.completing import exchange_names, queue_names
from leveret.cli.printing import output
from leveret.limits import CLIENT_MESSAGE_BYTES_MAX
from leveret.sizes import counted

if TYPE_CHECKING:
    from leveret.wire.properties import BasicProperties

#: The properties that are numbers.
_NUMBERS: Final = ("delivery_mode", "priority", "timestamp")


def publish(
    routing_key: Annotated[
        str,
        typer.Argument(
            metavar="ROUTING_KEY",
            autocompletion=queue_names,
            help="The routing key: the queue's name without --exchange.",
        ),
    ],
    body: Annotated[
        bytes | None,
        typer.Argument(
            metavar="BODY", parser=os.fsencode, help="The message; by default, standard input."
        ),
    ] = None,
    exchange: Annotated[
        str,
        typer.Option(
            "--exchange",
            "-e",
            metavar="EXCHANGE",
            autocompletion=exchange_names,
            help="The exchange.",
        ),
    ] = "",
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Read the message from a file.", metavar="FILE"),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", "-l", help="Publish each line of the input as a message.")
    ] = False,
    transient: Annotated[
        bool, typer.Option("--transient", help="Lost at a restart (default: persistent).")
    ] = False,
    optional: Annotated[
        bool, typer.Option("--optional", help="Succeed even if no queue takes it.")
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="KEY=VALUE", help="A header; VALUE is JSON or text."),
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", help="A property, such as content_type=text/plain."
        ),
    ] = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Publish messages and wait for their confirms."""
    from leveret.cli.connecting import open_channel

    if body is not None and (file or lines):
        raise exits.Failure("BODY cannot be combined with --file or --lines", exits.USAGE)
    properties = read_properties(property_ or [], header or [], transient)
    count = 0
    with open_channel(uri) as (_, channel):
        channel.confirm_select()
        for message in _messages(body, file, lines):
            channel.publish_nowait(
                message, exchange, routing_key, properties, mandatory=not optional
            )
            count += 1
        channel.wait_for_confirms()
    output.say(f"{counted(count, 'message')} confirmed", err=True)


def read_properties(pairs: list[str], headers: list[str], transient: bool) -> BasicProperties:
    """Return the message properties that the options set.  Raises: Failure."""
    from leveret.wire.properties import BasicProperties

    properties = BasicProperties(delivery_mode=1 if transient else 2)
    for name, value in options.read_pairs(pairs, "--property", texts=True).items():
        if name == "headers" or name not in BasicProperties.FIELDS:
            known = ", ".join(field for field in BasicProperties.FIELDS if field != "headers")
            raise exits.Failure(f"--property: {name!r} is none of {known}", exits.USAGE)
        setattr(properties, name, _number(name, value) if name in _NUMBERS else value)
    if headers:
        properties.headers = options.read_pairs(headers, "--header")
    return properties


def _number(name: str, value: object) -> int:
    """Return the value of a numeric property.  Raises: Failure."""
    try:
        return int(str(value))
    except ValueError:
        raise exits.Failure(f"--property: {name} must be a number", exits.USAGE) from None


def _messages(body: bytes | None, file: Path | None, lines: bool) -> Iterator[bytes]:
    """Yield the bodies to publish.  Raises: Failure."""
    if body is not None:
        yield body
        return
    name = "standard input" if file is None else str(file)
    try:
        with sys.stdin.buffer if file is None else file.open("rb") as source:
            while data := _next(source, name, lines):
                yield data.rstrip(b"\r\n") if lines else data
                if not lines:
                    return
            if not lines:
                yield b""
    except OSError as error:
        raise exits.Failure(f"cannot read {name}: {error.strerror}", exits.NO_INPUT) from None


def _next(source: BinaryIO, name: str, lines: bool) -> bytes:
    """Return the next line, or the whole input.  Raises: Failure; OSError."""
    most = CLIENT_MESSAGE_BYTES_MAX
    # The size is limited because a device such as /dev/zero never ends.
    data = source.readline(most + 1) if lines else source.read(most + 1)
    if len(data) > most:
        text = f"{name}: a message has at most {most} bytes; --lines publishes each line separately"
        raise exits.Failure(text, exits.USAGE)
    return data


def app() -> typer.Typer:
    """Return the command."""
    return single("publish", publish)
