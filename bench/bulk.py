"""Reading a stream in bulk without Spark: the decoder alone, the bytes alone, and both.

    .venv/bin/python bench/bulk.py [--messages 500000] [--rounds 5] [--json]

Random bodies of 100 bytes, all columns.  *Decoder* makes Arrow batches of chunks in memory, once of
messages that share their properties and once of messages with an id each; *bytes* reads chunks from
a broker over HTTP and looks at their headers only; *bulk* is the transport that Spark uses, and
*amqp* the other one.  A figure is the best of the rounds, in rows per second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import sides

from leveret.chunk import ChunkBuilder
from leveret.client import BasicProperties
from leveret.client.blocking import connect
from leveret.message import Address, Message
from leveret.spark.columns.chunks import ChunkBatchBuilder, Pieces
from leveret.spark.columns.schema import ROW
from leveret.spark.connection.http_link import HttpLink
from leveret.spark.options.read import Options, parse_options
from leveret.spark.transports import open_transport
from leveret.spark.transports.bulk import chunks_of
from support.brokers.broker_process import BrokerProcess

STREAM: Final = "bench-bulk"
BODY_BYTES: Final = 100
CHUNKS: Final = 50
KEYS: Final = 50
WINDOW: Final = 1000

#: What the AMQP transport may take of the rows: it is a few times slower.
AMQP_SHARE: Final = 0.2


def made_chunks(with_ids: bool) -> tuple[list[bytes], int]:
    """Return full chunks of random messages, and how many messages they hold."""
    chunks: list[bytes] = []
    offset = 0
    for _ in range(CHUNKS):
        builder = ChunkBuilder(1)
        while not builder.full:
            address = Address(b"amq.topic", b"some.key.%d" % (offset % KEYS))
            message_id = str(offset) if with_ids else None
            properties = BasicProperties(
                content_type="application/json", headers={"a": "b"}, message_id=message_id
            )
            body = os.urandom(BODY_BYTES)
            builder.add(offset, Message(address, properties.encode(), body, offset, True))
            offset += 1
        chunks.append(builder.build())
    return chunks, offset


def decoding(with_ids: bool) -> Callable[[], int]:
    """Return a run of the decoder, which returns its rows."""
    chunks, count = made_chunks(with_ids)
    builder = ChunkBatchBuilder(STREAM, ROW)

    def pieces() -> Iterator[int]:
        gathered = Pieces(builder, 0, count)
        for chunk in chunks:
            for piece in gathered.feed(chunk):
                yield piece.batch.num_rows
        for piece in gathered.flush():
            yield piece.batch.num_rows

    return lambda: sum(pieces())


def fill(broker: BrokerProcess, messages: int) -> None:
    """Publish random messages, each confirmed."""
    properties = BasicProperties(content_type="application/json", headers={"a": "b"})
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.confirm_select()
        channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(STREAM, "amq.topic", "some.#")
        for number in range(messages):
            key = f"some.key.{number % KEYS}"
            channel.publish_nowait(os.urandom(BODY_BYTES), "amq.topic", key, properties)
            if number % WINDOW == WINDOW - 1:
                channel.wait_for_confirms()
        channel.wait_for_confirms()


def options(broker: BrokerProcess, transport: str) -> Options:
    """Return the options of a read."""
    return parse_options({"uri": broker.uri, "stream": STREAM, "transport": transport})


def fetching(broker: BrokerProcess, messages: int) -> Callable[[], int]:
    """Return a run that reads the chunks and decodes none."""
    link = HttpLink(options(broker, "bulk"), STREAM)

    def run() -> int:
        with link.ask("/chunks", {"offset": 0, "max_bytes": 2**30}) as answer:
            for _ in chunks_of(answer):
                pass
        return messages

    return run


def reading(broker: BrokerProcess, transport: str, messages: int) -> Callable[[], int]:
    """Return a run of a transport, which returns its rows."""
    way = open_transport(options(broker, transport), STREAM, ROW)
    return lambda: sum(piece.batch.num_rows for piece in way.read(0, messages))


def rate(run: Callable[[], int], rounds: int) -> float:
    """Return the rows per second of the best of some rounds, after one that warms up."""
    run()
    figures = []
    for _ in range(rounds):
        began = time.perf_counter()
        figures.append(run() / (time.perf_counter() - began))
    return max(figures)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    found = {
        "decoder": rate(decoding(False), given.rounds),
        "decoder, ids": rate(decoding(True), given.rounds),
    }
    with (
        tempfile.TemporaryDirectory(prefix="bench-bulk-") as directory,
        BrokerProcess(Path(directory)) as broker,
    ):
        fill(broker, given.messages)
        found["bytes"] = rate(fetching(broker, given.messages), given.rounds)
        found["bulk"] = rate(reading(broker, "bulk", given.messages), given.rounds)
        some = int(given.messages * AMQP_SHARE)
        found["amqp"] = rate(reading(broker, "amqp", some), given.rounds)
    if given.json:
        print(json.dumps(found, indent=2))
        return 0
    print(f"{sides.version(sys.executable)}, load {load:.2f} before")
    for name, figure in found.items():
        print(f"{name:14} {figure / 1e6:6.2f} M rows/s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
