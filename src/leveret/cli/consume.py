"""`leveret consume`: print the messages of a queue or a stream as they come, and ack them."""

from __future__ import annotations

from typing import Annotated

import typer

from leveret.cli import options
from leveret.cli.messages import Format, print_message


def consume(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue or stream.")],
    count: Annotated[
        int, typer.Option("--count", "-c", min=0, help="End after so many messages; 0: never.")
    ] = 0,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            "-t",
            min=0,
            metavar="SECONDS",
            help="End when nothing came for so long; 0: never.",
        ),
    ] = 0.0,
    prefetch: Annotated[
        int, typer.Option("--prefetch", "-q", min=1, max=65_535, help="Messages sent ahead.")
    ] = 100,
    offset: Annotated[
        str,
        typer.Option(
            "--offset", "-o", help="Where a stream is read from: first, last, next or a number."
        ),
    ] = "",
    form: Format = "body",
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Print messages and ack each after it is printed; end by SIGINT, --count or --timeout."""
    from leveret.cli.connecting import open_channel

    arguments: dict[str, object] = {}
    if offset:
        arguments["x-stream-offset"] = int(offset) if offset.isdigit() else offset
    with open_channel(uri) as (_, channel):
        channel.qos(min(prefetch, count) if count else prefetch)
        consumer = channel.consume(queue, arguments=arguments, inactivity_timeout=timeout or None)
        with consumer:
            for printed, message in enumerate(consumer, 1):
                print_message(message, form)
                message.ack()
                if printed == count:
                    break


def app() -> typer.Typer:
    """Return the command."""
    made = typer.Typer(rich_markup_mode=None, add_completion=False)
    made.command("consume")(consume)
    return made
