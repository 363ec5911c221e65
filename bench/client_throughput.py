"""Messages per second that the client delivers and publishes, against a running broker.

    python bench/client_throughput.py [URI] [--messages N] [--size N]

Each figure is of one connection: `consume` reads a full queue with no_ack, `ack` the same with an
ack of each 100, `publish` sends without confirms, `confirm` in windows of 1000 confirms.  What
fills the queue is not in the figure.  The broker shares the machine, so a figure is a lower bound
of the client's own speed; `parse` is the session alone, fed from memory, and needs no broker.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from leveret.client import asynchronous, blocking
from leveret.client.events import Replied, Token
from leveret.client.recovery.revival import NoDeliveries
from leveret.client.session.connection import ClientConnection
from leveret.client.uri import Parameters
from leveret.wire.buffer import COMPILED, BytesWriter
from leveret.wire.frames import write_body, write_header, write_method
from leveret.wire.method import Method
from leveret.wire.methods import (
    BasicDeliver,
    ChannelOpenOk,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionTune,
)

WINDOW = 1000
ACK_EVERY = 100
PIECE_BYTES = 65_536


class Nobody(Token):
    """A token that nobody waits for."""

    def replied(self, reply: Replied) -> None:
        """Take nothing."""

    def end(self, error: Exception | None) -> None:
        """Take nothing."""


def written(*methods: tuple[int, Method]) -> bytes:
    """Return methods as the frames that carry them."""
    w = BytesWriter()
    for channel, method in methods:
        write_method(w, channel, method)
    return w.getvalue()


def parse(count: int, body: bytes) -> float:
    """Return the seconds that a session takes for `count` deliveries in pieces of 64 KiB."""
    session = ClientConnection(Parameters(), 0)
    session.receive(written((0, ConnectionStart()), (0, ConnectionTune()), (0, ConnectionOpenOk())))
    session.open_channel(NoDeliveries(), Nobody())
    session.receive(written((1, ChannelOpenOk())))
    w = BytesWriter()
    for tag in range(1, count + 1):
        write_method(w, 1, BasicDeliver(consumer_tag="ctag", delivery_tag=tag, routing_key="q"))
        write_header(w, 1, 60, len(body), b"\x10\x00\x02")
        write_body(w, 1, body, 131_072)
    data = w.getvalue()
    pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
    started = time.perf_counter()
    found = sum(len(session.receive(piece)) for piece in pieces)
    seconds = time.perf_counter() - started
    if found != count:
        raise SystemExit(f"{found} of {count} messages were found")
    return seconds


def fill(channel: blocking.Channel, queue: str, count: int, body: bytes) -> float:
    """Publish in confirmed windows; return the seconds."""
    channel.confirm_select()
    started = time.perf_counter()
    for number in range(1, count + 1):
        channel.publish_nowait(body, routing_key=queue)
        if number % WINDOW == 0:
            channel.wait_for_confirms()
    channel.wait_for_confirms()
    return time.perf_counter() - started


def blocking_consume(connection: blocking.Connection, queue: str, count: int, acks: bool) -> float:
    """Return the seconds that the blocking shell takes for `count` messages."""
    with connection.channel() as channel:
        channel.qos(WINDOW)
        started = time.perf_counter()
        for number, message in enumerate(channel.consume(queue, no_ack=not acks), 1):
            if acks and number % ACK_EVERY == 0:
                channel.ack(message.delivery_tag, multiple=True)
            if number == count:
                break
        return time.perf_counter() - started


def blocking_publish(connection: blocking.Connection, queue: str, count: int, body: bytes) -> float:
    """Return the seconds until the broker has `count` unconfirmed publishes."""
    with connection.channel() as channel:
        started = time.perf_counter()
        for _ in range(count):
            channel.publish_nowait(body, routing_key=queue)
        channel.queue_declare(queue, passive=True)
        return time.perf_counter() - started


async def asyncio_consume(uri: str, queue: str, count: int, acks: bool) -> float:
    """Return the seconds that the asyncio shell takes for `count` messages."""
    async with await asynchronous.connect(uri) as connection:
        channel = await connection.channel()
        await channel.qos(WINDOW)
        number = 0
        started = time.perf_counter()
        async for message in channel.consume(queue, no_ack=not acks):
            number += 1
            if acks and number % ACK_EVERY == 0:
                channel.ack(message.delivery_tag, multiple=True)
            if number == count:
                break
        return time.perf_counter() - started


async def asyncio_confirm(uri: str, queue: str, count: int, body: bytes) -> float:
    """Return the seconds that the asyncio shell takes for confirmed windows."""
    async with await asynchronous.connect(uri) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        started = time.perf_counter()
        for number in range(1, count + 1):
            channel.publish_nowait(body, routing_key=queue)
            if number % WINDOW == 0:
                await channel.wait_for_confirms()
        await channel.wait_for_confirms()
        return time.perf_counter() - started


async def asyncio_publish(uri: str, queue: str, count: int, body: bytes) -> float:
    """Return the seconds until the broker has `count` unconfirmed publishes."""
    async with await asynchronous.connect(uri) as connection:
        channel = await connection.channel()
        started = time.perf_counter()
        for _ in range(count):
            await channel.publish(body, routing_key=queue)
        await channel.queue_declare(queue, passive=True)
        return time.perf_counter() - started


def measure(uri: str, count: int, body: bytes) -> None:
    """Print every figure against the broker at `uri`."""
    with blocking.connect(uri) as connection:
        filler = connection.channel()
        queue = filler.queue_declare().queue

        def refill() -> None:
            filler.queue_purge(queue)
            fill(filler, queue, count, body)

        show("blocking confirm", count, fill(filler, queue, count, body))
        show("blocking consume", count, blocking_consume(connection, queue, count, acks=False))
        refill()
        show("blocking ack", count, blocking_consume(connection, queue, count, acks=True))
        show("blocking publish", count, blocking_publish(connection, queue, count, body))
        refill()
        show("asyncio consume", count, asyncio.run(asyncio_consume(uri, queue, count, acks=False)))
        refill()
        show("asyncio ack", count, asyncio.run(asyncio_consume(uri, queue, count, acks=True)))
        show("asyncio publish", count, asyncio.run(asyncio_publish(uri, queue, count, body)))
        filler.queue_purge(queue)
        show("asyncio confirm", count, asyncio.run(asyncio_confirm(uri, queue, count, body)))
        filler.queue_delete(queue)


def show(name: str, count: int, seconds: float) -> None:
    """Print one figure."""
    print(f"{name:20}{count / seconds:12,.0f} msg/s", flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("uri", nargs="?", help="a broker; without it only `parse`")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100)
    options = parser.parse_args()
    body = b"x" * options.size
    print(f"{'compiled' if COMPILED else 'pure'} codec, {options.size} B bodies")
    show("parse", options.messages, parse(options.messages, body))
    if options.uri:
        measure(options.uri, options.messages, body)


if __name__ == "__main__":
    main()
