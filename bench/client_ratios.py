"""Leveret's client beside pika and aio-pika, in one run against Leveret: figures and ratios.

    .venv/bin/python bench/client_ratios.py [--messages 100000] [--rounds 3] [--size 100] [--json]

Each client does what its users do.  Publishing: every message is confirmed, by pika one at a time,
as it has no other way, by the others with a thousand unconfirmed at most.  Consuming: a full queue,
a prefetch of a thousand, and each message acked by itself.  The queue is transient, so that no disk
is in the figures; what fills it is not in them either.

The slower clients move a tenth of the messages.  A figure is the median of the rounds, in which the
clients take turns; the broker has the first core, the client the last one.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aio_pika
import pika
import sides

from leveret.client import Channel, blocking, connect

WINDOW: Final = 1000

#: Moves so many messages of that body through that queue; returns the seconds.
Measure = Callable[[str, str, int, bytes], float]


@dataclass(frozen=True)
class Subject:
    """A client doing one thing; `share` of the messages are enough to measure it."""

    name: str
    measure: Measure
    share: float = 1.0


@dataclass(frozen=True)
class Comparison:
    """What several clients do; `targets` are the ratios that ours is to reach, by subject."""

    title: str
    filled: bool
    subjects: Sequence[Subject]
    targets: dict[str, float]


# -- Leveret's -------------------------------------------------------------------------------------


def blocking_publish(uri: str, queue: str, count: int, body: bytes, **options: Any) -> float:
    """Publish in confirmed windows from blocking code."""
    with blocking.connect(uri, **options) as connection, connection.channel() as channel:
        channel.confirm_select()
        began = time.perf_counter()
        for number in range(1, count + 1):
            channel.publish_nowait(body, routing_key=queue)
            if number % WINDOW == 0:
                channel.wait_for_confirms()
        channel.wait_for_confirms()
        return time.perf_counter() - began


def blocking_consume(uri: str, queue: str, count: int, _: bytes, **options: Any) -> float:
    """Consume and ack each message from blocking code."""
    with blocking.connect(uri, **options) as connection, connection.channel() as channel:
        channel.qos(WINDOW)
        began = time.perf_counter()
        for number, message in enumerate(channel.consume(queue), 1):
            message.ack()
            if number == count:
                break
        connection.flush()
        return time.perf_counter() - began


def asyncio_publish(uri: str, queue: str, count: int, body: bytes, **options: Any) -> float:
    """Publish in confirmed windows from asyncio."""

    async def run() -> float:
        async with await connect(uri, **options) as connection:
            channel: Channel = await connection.channel()
            await channel.confirm_select()
            began = time.perf_counter()
            for number in range(1, count + 1):
                channel.publish_nowait(body, routing_key=queue)
                if number % WINDOW == 0:
                    await channel.wait_for_confirms()
            await channel.wait_for_confirms()
            return time.perf_counter() - began

    return asyncio.run(run())


def asyncio_consume(uri: str, queue: str, count: int, _: bytes, **options: Any) -> float:
    """Consume and ack each message from asyncio."""

    async def run() -> float:
        async with await connect(uri, **options) as connection:
            channel: Channel = await connection.channel()
            await channel.qos(WINDOW)
            number = 0
            began = time.perf_counter()
            async for message in channel.consume(queue):
                message.ack()
                number += 1
                if number == count:
                    break
            return time.perf_counter() - began

    return asyncio.run(run())


# -- others ----------------------------------------------------------------------------------------


def pika_publish(uri: str, queue: str, count: int, body: bytes) -> float:
    """Publish by pika; each call waits for its confirm."""
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    channel = connection.channel()
    channel.confirm_delivery()
    began = time.perf_counter()
    for _ in range(count):
        channel.basic_publish("", queue, body)
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


def pika_consume(uri: str, queue: str, count: int, _: bytes) -> float:
    """Consume by pika's iterator, which is its faster way, and ack each message."""
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=WINDOW)
    began = time.perf_counter()
    for number, (method, _, _) in enumerate(channel.consume(queue), 1):
        channel.basic_ack(method.delivery_tag)
        if number == count:
            break
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


def aio_pika_publish(uri: str, queue: str, count: int, body: bytes) -> float:
    """Publish by aio-pika, a window of tasks at a time."""

    async def run() -> float:
        connection = await aio_pika.connect(uri)
        exchange = (await connection.channel()).default_exchange
        began = time.perf_counter()
        for first in range(0, count, WINDOW):
            window = range(first, min(first + WINDOW, count))
            await asyncio.gather(
                *(exchange.publish(aio_pika.Message(body), routing_key=queue) for _ in window)
            )
        seconds = time.perf_counter() - began
        await connection.close()
        return seconds

    return asyncio.run(run())


def aio_pika_consume(uri: str, queue: str, count: int, _: bytes) -> float:
    """Consume by aio-pika's iterator and ack each message."""

    async def run() -> float:
        connection = await aio_pika.connect(uri)
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=WINDOW)
        number = 0
        began = time.perf_counter()
        async with (await channel.get_queue(queue)).iterator() as messages:
            async for message in messages:
                await message.ack()
                number += 1
                if number == count:
                    break
            seconds = time.perf_counter() - began
        await connection.close()
        return seconds

    return asyncio.run(run())


# -- comparing -------------------------------------------------------------------------------------

OURS_BLOCKING: Final = "Leveret, blocking"
OURS_ASYNCIO: Final = "Leveret, asyncio"

COMPARISONS: Final = [
    Comparison(
        "publish, confirmed",
        False,
        [
            Subject(OURS_BLOCKING, blocking_publish),
            Subject(OURS_ASYNCIO, asyncio_publish),
            Subject("blocking, recover=False", functools.partial(blocking_publish, recover=False)),
            Subject("asyncio, recover=False", functools.partial(asyncio_publish, recover=False)),
            Subject("pika", pika_publish, 0.1),
            Subject("aio-pika", aio_pika_publish, 0.1),
        ],
        {"pika": 10, "aio-pika": 5},
    ),
    Comparison(
        "consume, each message acked",
        True,
        [
            Subject(OURS_BLOCKING, blocking_consume),
            Subject(OURS_ASYNCIO, asyncio_consume),
            Subject("blocking, recover=False", functools.partial(blocking_consume, recover=False)),
            Subject("asyncio, recover=False", functools.partial(asyncio_consume, recover=False)),
            Subject("pika", pika_consume, 0.25),
            Subject("aio-pika", aio_pika_consume, 0.1),
        ],
        {"pika": 10},
    ),
]


def measured(uri: str, comparison: Comparison, subject: Subject, count: int, body: bytes) -> float:
    """Return the messages per second of one subject, on a queue of its own."""
    count = max(WINDOW, int(count * subject.share))
    with blocking.connect(uri) as connection, connection.channel() as channel:
        queue = channel.queue_declare("bench-client-ratios", durable=False).queue
        if comparison.filled:
            channel.confirm_select()
            for number in range(1, count + 1):
                channel.publish_nowait(body, routing_key=queue)
                if number % WINDOW == 0:
                    channel.wait_for_confirms()
            channel.wait_for_confirms()
        try:
            return count / subject.measure(uri, queue, count, body)
        finally:
            channel.queue_delete(queue)


def report(comparison: Comparison, rates: dict[str, float]) -> dict[str, float]:
    """Print the figures of a comparison and return the ratios."""
    print(f"\n{comparison.title}")
    for subject in comparison.subjects:
        print(f"  {subject.name:26}{rates[subject.name]:12,.0f} msg/s")
    ratios: dict[str, float] = {}
    for ours in (OURS_BLOCKING, OURS_ASYNCIO):
        for theirs in ("pika", "aio-pika"):
            ratios[f"{ours} : {theirs}"] = rates[ours] / rates[theirs]
        off = rates[f"{ours.partition(', ')[2]}, recover=False"]
        ratios[f"{ours} : recover=False"] = rates[ours] / off
    for name, ratio in ratios.items():
        target = comparison.targets.get(name.rpartition(" : ")[2])
        wanted = f"  (target {target:g})" if target else ""
        print(f"  {name:40}{ratio:8.2f}{wanted}")
    return ratios


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    body = b"x" * options.size
    broker_cpus, client_cpus = sides.cores("one")
    found: dict[str, dict[str, list[float]]] = {one.title: {} for one in COMPARISONS}
    version = sides.version(sys.executable)
    with (
        tempfile.TemporaryDirectory() as name,
        sides.leveret(sys.executable, version, Path(name), broker_cpus) as side,
        sides.placed(client_cpus),
    ):
        uri = f"amqp://guest:guest@127.0.0.1:{side.port}/%2F"
        for _ in range(options.rounds):
            for comparison in COMPARISONS:
                for subject in comparison.subjects:
                    rate = measured(uri, comparison, subject, options.messages, body)
                    found[comparison.title].setdefault(subject.name, []).append(rate)
    medians = {
        title: {name: statistics.median(rates) for name, rates in subjects.items()}
        for title, subjects in found.items()
    }
    if options.json:
        machine = sides.machine()
        print(json.dumps({"version": version, **machine, "median": medians, "rounds": found}))
        return 0
    print(f"{version}; {sides.machine()['processor']}; {options.size} B; {options.rounds} rounds")
    for comparison in COMPARISONS:
        report(comparison, medians[comparison.title])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
