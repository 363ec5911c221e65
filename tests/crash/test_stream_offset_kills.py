"""Stored offsets of a stream's consumers over SIGKILL: nothing that was not acked is passed over.

A named consumer reads, acks in an order of chance, and the broker is killed at a moment that the
seed chooses; after each start the name must begin at or before the first message that was never
acked, and not before what a cancel-ok said to be on the disk.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Final

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.wire import raw

KILLS: Final = 4
MESSAGES: Final = 150
NAMES: Final = ("one", "two")


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


class Reader:
    """What a client knows of one name: the offsets that it acked, and what was promised."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.acked: set[int] = set()
        self.promised = 0

    def first_not_done(self) -> int:
        """The lowest offset that was never acked."""
        offset = 0
        while offset in self.acked:
            offset += 1
        return offset

    def consume(self, connection: raw.Connection, count: int) -> list[raw.Method]:
        """Consume under the name; return the first so many deliveries, which is the prefetch."""
        connection.open_channel(1)
        connection.call(1, "basic.qos", prefetch_count=count)
        arguments = {"x-stream-consumer": self.name, "x-stream-offset": "first"}
        connection.call(1, "basic.consume", queue="s", consumer_tag="c", arguments=arguments)
        return [connection.expect(1, "basic.deliver") for _ in range(count)]

    def cancel(self, connection: raw.Connection, at: int) -> None:
        """Cancel: the name begins at `at`, or later, from now on."""
        connection.send(raw.method(1, "basic.cancel", consumer_tag="c"))
        connection.expect(1, "basic.cancel-ok")
        self.promised = max(self.promised, at)

    def read(self, connection: raw.Connection, count: int, *, cancel: bool) -> None:
        """Read so many messages and ack most of them; cancel then, or leave that to the kill."""
        got = self.consume(connection, count)
        offsets = [self.offset_of(one) for one in got]
        first = offsets[0]
        assert offsets == list(range(first, first + count))
        assert self.promised <= first <= self.first_not_done()
        if cancel:
            # Before the acks, which would let more come.
            self.cancel(connection, first)
        tags = [one.delivery_tag for one in got]
        self.chance.shuffle(tags)
        done = tags[: self.chance.randint(1, count)]
        acked = {offsets[tag - 1] for tag in done}
        self.acked |= acked
        for tag in done:
            connection.send(raw.method(1, "basic.ack", delivery_tag=tag))
        if cancel:
            connection.call(1, "channel.close")
            (again,) = self.consume(connection, 1)
            # Of an ack before the last kill the broker need not know.
            held = [offset for offset in offsets if offset not in acked]
            assert self.offset_of(again) == min(held, default=first + count)
            self.cancel(connection, self.offset_of(again))

    @staticmethod
    def offset_of(got: raw.Method) -> int:
        """The offset of a delivery."""
        return int(raw.decode_properties(got.properties)["headers"]["x-stream-offset"])


def publish(connection: raw.Connection, count: int) -> None:
    """Publish to the stream and wait for the confirms."""
    connection.open_channel(1)
    connection.call(1, "confirm.select")
    connection.send(*[raw.publish(1, "", "s", b"x" * 800) for _ in range(count)])
    while connection.expect(1, "basic.ack").delivery_tag < count:
        pass


@pytest.mark.parametrize(
    ("seed", "settings"),
    [(1, {}), (2, {"journal_bytes_max": "65536"})],
    ids=["long", "short"],
)
def test_a_name_passes_over_nothing(tmp_path: Path, seed: int, settings: dict[str, str]) -> None:
    """A journal of 64 KiB has some checkpoints in it."""
    chance = random.Random(seed)
    readers = [Reader(name, chance) for name in NAMES]
    with BrokerProcess(tmp_path, settings=settings) as broker:
        with raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            connection.declare(1, "s", durable=True, arguments={"x-queue-type": "stream"})
        for _ in range(KILLS):
            with contextlib.ExitStack() as stack:
                publish(stack.enter_context(raw.connect(broker.uri)), MESSAGES)
                for reader in readers:
                    connection = stack.enter_context(raw.connect(broker.uri))
                    cancel = chance.random() < 0.5
                    reader.read(connection, chance.randint(2, 40), cancel=cancel)
                broker.kill()
            broker.start()
        assert all(reader.promised <= reader.first_not_done() for reader in readers)
