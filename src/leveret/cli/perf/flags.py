"""The options of `leveret perf`, with the letters of RabbitMQ's PerfTest for the same options."""

from __future__ import annotations

from typing import Annotated

import typer

from leveret.cli import options
from leveret.cli.helping.completing import queue_names

#: The maximum number of publishing or of consuming connections, each of which uses a port.
SIDES_MAX = 65_535

Uri = Annotated[
    str,
    options.uri_option("-U", "--uri", help_text="The broker, also after -h."),
]
Producers = Annotated[
    int,
    typer.Option(
        "-x", "--producers", min=0, max=SIDES_MAX, metavar="NUMBER", help="Publishing connections."
    ),
]
Consumers = Annotated[
    int,
    typer.Option(
        "-y", "--consumers", min=0, max=SIDES_MAX, metavar="NUMBER", help="Consuming connections."
    ),
]
Size = Annotated[
    int, options.size_option("-s", "--size", help_text="The size of a body, such as 16 or 1KiB.")
]
Confirm = Annotated[
    int,
    typer.Option(
        "-c",
        "--confirm",
        min=0,
        metavar="WINDOW",
        help="The maximum number of unconfirmed publishes; 0: no confirms.",
    ),
]
Autoack = Annotated[bool, typer.Option("-a", "--autoack", help="Consume without acks.")]
MultiAckEvery = Annotated[
    int,
    typer.Option(
        "-A", "--multi-ack-every", min=1, metavar="NUMBER", help="The number of deliveries per ack."
    ),
]
Qos = Annotated[
    int,
    typer.Option(
        "-q",
        "--qos",
        min=0,
        max=65_535,
        metavar="NUMBER",
        help="Prefetch of a consumer; 0: no limit.",
    ),
]
Flag = Annotated[
    list[str] | None,
    typer.Option("-f", "--flag", metavar="persistent|mandatory", help="A flag of the messages."),
]
Predeclared = Annotated[
    bool,
    typer.Option(
        "-p", "--predeclared", help="The queue exists: it is neither declared nor deleted."
    ),
]
Seconds = Annotated[
    float, typer.Option("-z", "--time", min=0, metavar="SECONDS", help="How long to run.")
]
Pmessages = Annotated[
    int,
    typer.Option(
        "-C",
        "--pmessages",
        min=0,
        metavar="NUMBER",
        help="Messages of each producer; without -D the run ends when all are delivered.",
    ),
]
Cmessages = Annotated[
    int,
    typer.Option("-D", "--cmessages", min=0, metavar="NUMBER", help="Messages of each consumer."),
]
Rate = Annotated[
    float,
    typer.Option(
        "-r",
        "--rate",
        min=0,
        metavar="NUMBER",
        help="Messages a second of each producer; 0: as many as possible.",
    ),
]
ConsumerRate = Annotated[
    float,
    typer.Option(
        "-R",
        "--consumer-rate",
        min=0,
        metavar="NUMBER",
        help="Messages a second of each consumer; 0: as many as possible.",
    ),
]
Queue = Annotated[
    str,
    typer.Option(
        "-u",
        "--queue",
        metavar="QUEUE",
        autocompletion=queue_names,
        help="The queue, reached through the default exchange.",
    ),
]
QueueArgument = Annotated[
    list[str] | None,
    typer.Option(
        "--queue-argument", metavar="KEY=VALUE", help="An argument of the queue's declaration."
    ),
]
Latency = Annotated[
    bool,
    typer.Option(
        "-l", "--latency", help="Report the time from publish to delivery (both in this process)."
    ),
]
Json = Annotated[bool, typer.Option("-j", "--json", help="Print only a JSON object at the end.")]
