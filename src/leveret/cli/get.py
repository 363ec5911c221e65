"""`leveret get`: get waiting messages from a queue, one by one."""

from __future__ import annotations

from typing import Annotated

import typer

from leveret.cli import exits, options
from leveret.cli.helping.commands import single
from leveret.cli.helping.completing import queue_names
from leveret.cli.printing import output
from leveret.cli.printing.messages import Format, printing


def get(
    queue: Annotated[
        str, typer.Argument(metavar="QUEUE", autocompletion=queue_names, help="The queue.")
    ],
    count: Annotated[
        int, typer.Option("--count", "-c", min=1, metavar="NUMBER", help="Messages to get.")
    ] = 1,
    requeue: Annotated[
        bool, typer.Option("--requeue", help="Requeue them: they stay in the queue.")
    ] = False,
    form: Format = "body",
    uri: options.Uri = options.DEFAULT_URI,
) -> int:
    """Print and ack waiting messages. It ends with 1 if the queue is empty."""
    from leveret.cli.connecting import open_channel

    taken = 0
    with open_channel(uri) as (_, channel):
        with printing() as printed:
            while taken < count:
                message = channel.get(queue)
                if message is None:
                    break
                taken += 1
                printed(message, form)
                if not requeue:
                    message.ack()
        if requeue and taken:
            # All at the end, because the next get would return a message requeued earlier.
            channel.nack(multiple=True, requeue=True)
    if not taken:
        output.say(f"queue {queue!r} has no ready messages", err=True)
        return exits.NOTHING
    return exits.OK


def app() -> typer.Typer:
    """Return the command."""
    return single("get", get)
