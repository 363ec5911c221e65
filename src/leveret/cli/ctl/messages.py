"""Delete and purge queues; browse, move and rewind messages; list and cancel delayed messages."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli import exits
from leveret.cli.ctl.asking import Exchange, Queue, Vhost, json_of, target
from leveret.cli.helping.completing import queue_names
from leveret.cli.listing import Format
from leveret.cli.options import TIME_FORM, read_time
from leveret.cli.printing import output
from leveret.cli.printing.rows import with_times
from leveret.sizes import counted

#: The maximum number of digits of a time in ms since 1970.
_DIGITS_MAX: Final = 15

#: The maximum number of messages that one request moves.
_MOVED_MAX: Final = 1000


def delete_queue(
    context: typer.Context,
    queue: Queue,
    vhost: Vhost = "/",
    if_empty: Annotated[bool, typer.Option("--if-empty", "-e", help="Only an empty one.")] = False,
    if_unused: Annotated[
        bool, typer.Option("--if-unused", "-u", help="Only one without consumers.")
    ] = False,
) -> None:
    """Delete a queue with its messages."""
    given = {"if-empty": if_empty, "if-unused": if_unused}
    query = {name: "true" for name, asked in given.items() if asked}
    target(context).ask("DELETE", "queues", vhost, queue, query=query)


def purge_queue(context: typer.Context, queue: Queue, vhost: Vhost = "/") -> None:
    """Drop the ready messages of a queue. Unacked messages stay."""
    target(context).ask("DELETE", "queues", vhost, queue, "contents")


def rewind_queue(
    context: typer.Context,
    queue: Queue,
    since: Annotated[
        str, typer.Argument(help="A time such as 2026-11-20T18:00:00Z, or ms since 1970.")
    ],
    vhost: Vhost = "/",
) -> None:
    """Put acked messages back that a queue retained.

    The queue needs the argument `x-retain-acked`. The command prints how many it put back.
    """
    body = {"timestamp": milliseconds(since)}
    found = target(context).ask("POST", "queues", vhost, queue, "rewind", body=body)
    output.say(put_back(found))


def move_messages(
    context: typer.Context,
    queue: Queue,
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DESTINATION",
            help="The queue that gets them, in the same vhost.",
            autocompletion=queue_names,
        ),
    ],
    vhost: Vhost = "/",
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="REASON",
            help="Only messages last dead-lettered for this reason, such as rejected.",
        ),
    ] = "",
    died_in: Annotated[
        str,
        typer.Option(
            "--died-in", metavar="QUEUE", help="Only messages last dead-lettered from this queue."
        ),
    ] = "",
) -> None:
    """Move waiting messages to another queue.

    They may be dead letters, which go back to the queue that they died in. The command prints how
    many it moved. Without --reason and --died-in, messages that arrive meanwhile stay.
    """
    broker = target(context)
    found = broker.ask("GET", "queues", vhost, queue)
    if not isinstance(found, dict):
        # The path of an empty name is that of a list.
        raise exits.Failure(f"no queue {queue!r}", exits.REFUSED)
    # Also for an empty queue, so that the names are checked.
    left, moved = max(int(found.get("messages_ready", 0)), 1), 0
    body: dict[str, object] = {"to": destination, "reason": reason, "queue": died_in}
    while left > 0:
        body["count"] = count = min(left, _MOVED_MAX)
        try:
            answer = broker.ask("POST", "queues", vhost, queue, "move", body=body)
        except exits.Failure as failure:
            done = counted(moved, "message")
            failure.lines.append(f"{done} moved before, and perhaps some of the next {count}")
            raise
        assert isinstance(answer, dict)
        moved += answer["messages"]
        left -= answer["messages"]
        if not answer["left"]:
            break
        if answer["messages"] == 0:
            raise exits.Failure(
                f"{counted(moved, 'message')} moved to {destination}, but not all were examined",
                exits.NOTHING,
                hint=f"too many others wait in front of the rest: move those of {queue} first",
            )
    output.say(f"{counted(moved, 'message')} moved to {destination}")


def browse_queue(
    context: typer.Context,
    queue: Queue,
    vhost: Vhost = "/",
    count: Annotated[
        int,
        typer.Option("--count", "-n", min=1, max=1000, metavar="NUMBER", help="How many messages."),
    ] = 10,
    position: Annotated[
        int,
        typer.Option(
            "--position", metavar="NUMBER", help="Skip this many; if negative, the last ones."
        ),
    ] = 0,
    routing_key: Annotated[
        str,
        typer.Option(
            "--routing-key", "-k", metavar="PATTERN", help="A pattern, as for a topic exchange."
        ),
    ] = "",
    headers: Annotated[
        str, typer.Option("--headers", metavar="JSON", help="Arguments, as for a headers binding.")
    ] = "",
) -> None:
    """Print waiting messages as JSON; they stay waiting."""
    body: dict[str, object] = {"count": count, "position": position}
    if routing_key:
        body["routing-key"] = routing_key
    if headers:
        body["headers"] = json_of(headers, "HEADERS")
    left = count
    while left > 0:
        found = target(context).ask("POST", "queues", vhost, queue, "browse", body=body)
        assert isinstance(found, dict)
        for row in found["items"]:
            output.say_json(with_times(row))
        left -= len(found["items"])
        if found["after"] is None:
            return
        body |= {"after": found["after"], "count": max(left, 1)}


def list_delayed(
    context: typer.Context, exchange: Exchange, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the messages that a delayed exchange holds."""
    columns = ("id", "due", "exchange", "routing_key", "bytes", "persistent")
    target(context).show(form, columns, "exchanges", vhost, exchange, "delayed")


def cancel_delayed(
    context: typer.Context,
    exchange: Exchange,
    message: Annotated[int, typer.Argument(metavar="ID")],
    vhost: Vhost = "/",
) -> None:
    """Drop a delayed message."""
    target(context).ask("DELETE", "exchanges", vhost, exchange, "delayed", str(message))


def put_back(found: object) -> str:
    """Return the text for the answer to a rewind."""
    assert isinstance(found, dict)
    return f"{counted(found['messages'], 'message')} put back"


def milliseconds(text: str) -> int:
    """Return a time in ms since 1970; a time without a zone is local.  Raises: Failure."""
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        return int(text)
    time = read_time(text)
    if time is None:
        raise exits.Failure(f"SINCE takes {TIME_FORM}, or ms since 1970, not {text!r}", exits.USAGE)
    return int(time.timestamp() * 1000)


QUEUES: Final = (browse_queue, move_messages, purge_queue, rewind_queue, delete_queue)
DELAYED: Final = (list_delayed, cancel_delayed)
