"""`leveret declare`: a queue, an exchange, a binding, a stream or a super stream.

Declaring an existing object with the same properties succeeds and changes nothing.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Final

import typer

from leveret.cli import options
from leveret.cli.helping.commands import add, group
from leveret.cli.helping.completing import exchange_names, queue_names
from leveret.cli.printing import output

#: Queue arguments that only other modules or brokers use, in addition to `arguments.KNOWN`.
_KNOWN_TO_OTHERS: Final = (
    "x-super-stream-partitions",
    "x-stream-filter-size-bytes",
    "x-queue-master-locator",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
Transient = Annotated[
    bool, typer.Option("--transient", help="Deleted when the broker stops (default: durable).")
]
AutoDelete = Annotated[
    bool, typer.Option("--auto-delete", help="Deleted with its last consumer or binding.")
]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--argument", "-a", metavar="KEY=VALUE", help="An argument; VALUE is JSON, or else text."
    ),
]


def queue(
    name: Name,
    kind: Annotated[
        str, typer.Option("--type", "-t", metavar="classic|quorum|stream", help="Its type.")
    ] = "classic",
    transient: Transient = False,
    auto_delete: AutoDelete = False,
    argument: Arguments = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Declare a queue."""
    arguments = options.read_pairs(argument or [], "--argument")
    if kind != "classic":
        arguments["x-queue-type"] = kind
    _declare_queue(uri, name, not transient, auto_delete, arguments)


def stream(
    name: Name,
    max_bytes: Annotated[
        int,
        options.size_option("--max-bytes", help_text="The maximum size, such as 5GB; 0: no limit."),
    ] = 0,
    max_age: Annotated[
        str, typer.Option(metavar="AGE", help="The maximum age of messages: 7D, 12h, 30m, 45s.")
    ] = "",
    argument: Arguments = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Declare a stream. It keeps its messages for reads at any offset."""
    arguments = _stream_arguments(argument, max_bytes, max_age)
    _declare_queue(uri, name, True, False, arguments)


def super_stream(
    name: Name,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", min=1, metavar="NUMBER", help="The number of its streams."
        ),
    ] = 3,
    max_bytes: Annotated[
        int,
        options.size_option(
            "--max-bytes", help_text="The maximum size of each partition, such as 5GB; 0: no limit."
        ),
    ] = 0,
    max_age: Annotated[
        str, typer.Option(metavar="AGE", help="The maximum age of messages: 7D, 12h, 30m, 45s.")
    ] = "",
    argument: Arguments = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Declare a super stream.

    It is an exchange NAME and streams NAME-0, NAME-1 and so on.
    """
    arguments = _stream_arguments(argument, max_bytes, max_age)
    arguments["x-super-stream-partitions"] = partitions
    _declare_queue(uri, name, True, False, arguments)


def exchange(
    name: Name,
    kind: Annotated[
        str,
        typer.Option("--type", "-t", metavar="direct|fanout|topic|headers|...", help="Its type."),
    ] = "direct",
    transient: Transient = False,
    auto_delete: AutoDelete = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="Only other exchanges may publish to it.")
    ] = False,
    argument: Arguments = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Declare an exchange."""
    from leveret.cli.connecting import open_channel

    arguments = options.read_pairs(argument or [], "--argument")
    with open_channel(uri) as (_, channel):
        channel.exchange_declare(
            name,
            kind,
            durable=not transient,
            auto_delete=auto_delete,
            internal=internal,
            arguments=arguments,
        )
    output.say(name)


def binding(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            autocompletion=exchange_names,
            help="The exchange that the messages come from.",
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DESTINATION",
            autocompletion=queue_names,
            help="The queue that the messages go to.",
        ),
    ],
    key: Annotated[str, typer.Option("--key", "-k", metavar="KEY", help="The binding key.")] = "",
    to_exchange: Annotated[
        bool, typer.Option("--to-exchange", help="DESTINATION is an exchange.")
    ] = False,
    argument: Arguments = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Bind a queue, or an exchange, to an exchange."""
    from leveret.cli.connecting import open_channel

    arguments = options.read_pairs(argument or [], "--argument")
    with open_channel(uri) as (_, channel):
        if to_exchange:
            channel.exchange_bind(destination, source, key, arguments)
        else:
            channel.queue_bind(destination, source, key, arguments)
    output.say(f"{source} -> {destination}")


def _stream_arguments(
    argument: list[str] | None, max_bytes: int, max_age: str
) -> dict[str, object]:
    """Return the arguments for the options of a stream."""
    arguments = options.read_pairs(argument or [], "--argument")
    arguments["x-queue-type"] = "stream"
    if max_bytes:
        arguments["x-max-length-bytes"] = max_bytes
    if max_age:
        arguments["x-max-age"] = max_age
    return arguments


def _declare_queue(
    uri: str, name: str, durable: bool, auto_delete: bool, arguments: dict[str, object]
) -> None:
    """Declare a queue of any type and print its name.  Raises: Failure."""
    from leveret.cli.connecting import open_channel

    with open_channel(uri) as (_, channel):
        declared = channel.queue_declare(
            name, durable=durable, auto_delete=auto_delete, arguments=arguments
        )
    output.say(declared.queue)
    for key in arguments:
        _tell_near(key)


def _tell_near(key: str) -> None:
    """Warn about an unknown argument that resembles a known one.

    Brokers silently accept and store unknown arguments, which have no effect.
    """
    from leveret.broker.attributes.arguments import KNOWN

    known = (*KNOWN, *_KNOWN_TO_OTHERS)
    near = difflib.get_close_matches(key, known, 1, 0.8) if key not in known else []
    if near:
        output.say(f"leveret: unknown argument {key!r}; did you mean {near[0]}?", err=True)


def app() -> typer.Typer:
    """Return the group."""
    made = group("Declare a queue, exchange, binding or stream.")
    for command in (queue, exchange, binding, stream):
        add(made, command)
    add(made, super_stream, "super-stream")
    return made
