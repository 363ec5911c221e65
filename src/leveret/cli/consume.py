"""`leveret consume`: print the messages of a queue or a stream as they arrive, and ack them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import typer

from leveret.cli import exits, options
from leveret.cli.helping.commands import single
from leveret.cli.helping.completing import queue_names
from leveret.cli.printing.messages import Format, printing

#: The named offsets of a stream.
_PLACES: Final = ("first", "last", "next")


def consume(
    queue: Annotated[
        str,
        typer.Argument(metavar="QUEUE", autocompletion=queue_names, help="The queue or stream."),
    ],
    count: Annotated[
        int,
        typer.Option(
            "--count", "-c", min=0, metavar="NUMBER", help="End after this many messages; 0: never."
        ),
    ] = 0,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            "-t",
            min=0,
            metavar="SECONDS",
            help="End after this time without a message; 0: never.",
        ),
    ] = 0.0,
    prefetch: Annotated[
        int,
        typer.Option(
            "--prefetch",
            "-q",
            min=1,
            max=65_535,
            metavar="NUMBER",
            help="The maximum number of unacked messages.",
        ),
    ] = 100,
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            "-o",
            metavar="first|last|next|OFFSET|AGE|TIME",
            help="The start in a stream; a negative offset counts from the end, an age is 1h, "
            "and a time 2026-01-31T12:00:00Z.",
        ),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            "--name", "-n", metavar="NAME", help="Continue at the stream offset of this name."
        ),
    ] = "",
    value: Annotated[
        list[str] | None,
        typer.Option("--filter", "-f", metavar="VALUE", help="Only this filter value of a stream."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="PATTERN", help="Only these routing keys of a stream."),
    ] = None,
    form: Format = "body",
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Print and ack messages as they arrive.

    It ends at SIGINT, --count, --timeout or `| head`.
    """
    from leveret.cli.connecting import open_channel

    arguments = stream_options(offset, name, value or [], key or [])
    with open_channel(uri) as (_, channel):
        channel.qos(min(prefetch, count) if count else prefetch)
        consumer = channel.consume(queue, arguments=arguments, inactivity_timeout=timeout or None)
        with consumer, printing() as printed:
            for number, message in enumerate(consumer, 1):
                printed(message, form)
                message.ack()
                if number == count:
                    break


def stream_options(offset: str, name: str, values: list[str], keys: list[str]) -> dict[str, object]:
    """Return the consumer arguments for the stream options; empty if none is set."""
    from leveret.client.arguments import stream_arguments

    if not (offset or name or values or keys):
        return {}
    start = _start(offset or "next")
    return stream_arguments(start, name=name, filter_values=values, routing_keys=keys)


def _start(offset: str) -> int | str | datetime:
    """Return the value of an offset option as a number, a time or a word.  Raises: Failure."""
    try:
        return int(offset)
    except ValueError:
        pass
    from leveret.broker.attributes.arguments import is_age

    if offset in _PLACES or is_age(offset):
        return offset
    time = options.read_time(offset)
    if time is None:
        places = ", ".join(_PLACES)
        text = f"--offset takes {places}, an offset, an age such as 1h, or {options.TIME_FORM}"
        raise exits.Failure(f"{text}, not {offset!r}", exits.USAGE)
    return time


def app() -> typer.Typer:
    """Return the command."""
    return single("consume", consume)
