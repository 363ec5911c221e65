"""Python's AMQP clients side by side, on Leveret and on RabbitMQ: rates, processor time, ratios.

    .venv/bin/python bench/clients.py [--rounds 3] [--seconds 1] [--size 100] [--json]
                                      [--works publish,call] [--brokers leveret]
                                      [--clients blocking,pika] [--rabbitmq debian]

Leveret's clients (blocking and asyncio), pika, kombu (over py-amqp), AMQPStorm and aio-pika do the
same work, each as its users do:

    publish   each message waits for its confirm
    window    a thousand messages are unconfirmed at most; a client without this does `publish`
    consume   a full queue, a prefetch of a thousand, each message acked by itself
    batches   the same, with one ack for each hundred
    call      a request and its reply, one after the other; a process of the same client answers

Messages are transient, so that no disk is in the figures; what fills a queue is not in them either.
In a round the clients take turns on each broker, for about so many seconds each; a round before
the first finds how many messages these are.  Figures are medians of the rounds: messages (or calls)
per second, and the processor time of the client and of Leveret's broker for one, which a busy
machine changes less.  The ratios are of rates and, in brackets, of the clients' processor times.  A
broker has the first core, the clients have the last one.

The client `socket` writes and reads the bytes of `publish` and `call` without any library: the rest
of a round trip, which no library can save, is the broker's and the kernel's.  Further clients are
`blocking-unrecovered` and `asyncio-unrecovered`, which are ours without recovery, and
`blocking-numbered` and `asyncio-numbered`, whose publishes are numbered.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import rabbitmq_next
import sides
from client_libraries import CLIENTS, WORKS, Load
from rabbitmq import RabbitMQ, RabbitMQError

from leveret.client import blocking

#: The goal for the ratio of our client's rate to that of another client of the same kind.
TARGETS: Final = {"pika": 5.0, "kombu": 5.0, "AMQPStorm": 5.0, "aio-pika": 3.0}

#: The messages of the first run, which shows how many take the wanted time.
MESSAGES_FIRST: Final = 200

#: Figures by work, client, and name.
Figures = dict[str, dict[str, dict[str, float]]]


def measured(side: sides.Side, name: str, work: str, load: Load) -> dict[str, float]:
    """Do one kind of work on a new queue; return messages per second and microseconds for each."""
    client = CLIENTS[name]
    server = multiprocessing.get_context("fork").Process(target=client.serve, args=(load,))
    with blocking.connect(load.uri) as connection, connection.channel() as channel:
        channel.queue_declare(load.queue)
        try:
            if work in {"consume", "batches"}:
                CLIENTS["blocking"].window(load)
            if work == "call":
                server.start()
            before = sides.processor_seconds(side) if side.pid else 0.0
            getattr(client, work)(load)
            spent = sides.processor_seconds(side) - before if side.pid else 0.0
        finally:
            if server.pid is not None:
                server.terminate()
                server.join()
            channel.queue_delete(load.queue)
    figures = {"rate": load.count / load.seconds, "us": 1e6 * load.processor / load.count}
    return figures | ({"broker_us": 1e6 * spent / load.count} if side.pid else {})


def fit(side: sides.Side, name: str, work: str, load: Load, seconds: float) -> None:
    """Set the count of a load so that it takes about `seconds`."""
    while True:
        rate = measured(side, name, work, load)["rate"]
        lasted, load.count = load.seconds, int(rate * seconds)
        if lasted >= seconds / 4:
            return
        load.count = min(load.count, 10 * int(rate * lasted))


def rounds_of(side: sides.Side, options: argparse.Namespace) -> Iterator[Figures]:
    """Yield the figures of all clients and works, round after round."""
    uri = f"amqp://guest:guest@127.0.0.1:{side.port}/%2F"
    loads = {
        (work, name): Load(uri, "bench-clients", b"x" * options.size, MESSAGES_FIRST)
        for work in options.works
        for name in options.clients
        if work in CLIENTS[name].works
    }
    for (work, name), load in loads.items():
        fit(side, name, work, load, options.seconds)
    while True:
        found: Figures = {work: {} for work in options.works}
        for (work, name), load in loads.items():
            found[work][name] = measured(side, name, work, load)
        yield found


@contextlib.contextmanager
def brokers(names: list[str], kind: str, cpus: set[int]) -> Iterator[list[sides.Side]]:
    """Run the brokers that are named, RabbitMQ of the next release where that can be had."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = []
        if "leveret" in names:
            version = sides.version(sys.executable)
            side = sides.leveret(sys.executable, version, directory, cpus)
            found.append(stack.enter_context(side))
        if "rabbitmq" in names:
            chosen: type[RabbitMQ] = RabbitMQ
            if kind == "next":
                try:
                    rabbitmq_next.obtain()
                    chosen = rabbitmq_next.NextRabbitMQ
                except RabbitMQError as error:
                    print(f"Debian's RabbitMQ, as the next release's cannot be used: {error}")
            found.append(stack.enter_context(sides.rabbit(directory, cpus, chosen)))
        yield found


def median(rounds: list[Figures]) -> Figures:
    """Return the medians of the rounds."""
    return {
        work: {
            name: {
                figure: statistics.median(one[work][name][figure] for one in rounds)
                for figure in figures
            }
            for name, figures in clients.items()
        }
        for work, clients in rounds[0].items()
    }


def ratios(medians: Figures) -> dict[str, dict[str, dict[str, float]]]:
    """Return by client and work how much more time than ours of its kind another client takes."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in TARGETS:
        for work, clients in medians.items():
            ours, theirs = clients.get(ours_like(name)), clients.get(name)
            if ours is not None and theirs is not None:
                ratio = {
                    "time": ours["rate"] / theirs["rate"],
                    "processor": theirs["us"] / ours["us"],
                }
                found.setdefault(name, {})[work] = ratio
    return found


def ours_like(name: str) -> str:
    """Return the name of our client of the same kind."""
    return "blocking" if CLIENTS[name].is_blocking else "asyncio"


def show(title: str, medians: Figures) -> None:
    """Print the medians on a broker: a row for each client, and the ratios."""
    print(f"\n{title}")
    row(["", *medians])
    for name in dict.fromkeys(name for clients in medians.values() for name in clients):
        row([name, *(text(clients.get(name)) for clients in medians.values())])
    for name, works in ratios(medians).items():
        cells = (f"{one['time']:.1f} ({one['processor']:.1f})" for one in works.values())
        row([f"{ours_like(name)} : {name}, goal {TARGETS[name]:g}", *cells])


def row(cells: list[str]) -> None:
    """Print a row of the table."""
    print(f"{cells[0]:30}" + "".join(f"{cell:>27}" for cell in cells[1:]))


def text(cell: dict[str, float] | None) -> str:
    """Return the figures of a client and a work as the table shows them."""
    if cell is None:
        return ""
    broker = f" + {cell['broker_us']:.1f}" if "broker_us" in cell else ""
    return f"{cell['rate']:,.0f}/s, {cell['us']:.1f}{broker} µs"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    every: dict[str, list[str]] = {
        "works": list(WORKS),
        "clients": ["blocking", "pika", "kombu", "AMQPStorm", "asyncio", "aio-pika", "socket"],
        "brokers": ["leveret", "rabbitmq"],
    }
    for option, names in every.items():
        parser.add_argument(f"--{option}", type=lambda text: text.split(","), default=names)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rabbitmq", choices=("next", "debian"), default="next")
    parser.add_argument("--json", action="store_true", help="print JSON as well")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    broker_cpus, client_cpus = sides.cores("one")
    with (
        brokers(options.brokers, options.rabbitmq, broker_cpus) as running,
        sides.placed(client_cpus),
    ):
        turns = [rounds_of(side, options) for side in running]
        rounds = [[next(turn) for turn in turns] for _ in range(options.rounds)]
    machine = sides.machine()
    print(f"{machine['processor']}, {options.size} B, medians of {options.rounds} rounds")
    found = {}
    for number, side in enumerate(running):
        of_side = [one[number] for one in rounds]
        medians = median(of_side)
        found[side.name] = {"median": medians, "ratio": ratios(medians), "rounds": of_side}
        show(side.name, medians)
    if options.json:
        print(json.dumps({**machine, "bytes": options.size, "brokers": found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
