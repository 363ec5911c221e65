"""A load on recovering connections, with the fate of each message: for tests and for `chaos`.

Publishers and consumers have a connection each, all through one proxy.  A fault affects all of
them; the next one follows when every connection has recovered and more messages are confirmed.

A second queue gets every message and is read only at the end: a message stored twice is in it
twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from leveret.client import (
    BasicProperties,
    Channel,
    Connection,
    Message,
    Recovered,
    Recovery,
    RecoveryEvent,
    connect,
)
from support.wire.cut_proxy import CutProxy

PERSISTENT = BasicProperties(delivery_mode=2)
WINDOW = 20
#: The number of messages confirmed between two faults.
STEP = 100


@dataclass
class Load:
    """The confirmed and the received messages; `problems` describes violations."""

    queue: str
    numbered: bool = False
    confirmed: set[bytes] = field(default_factory=set)
    stored: Counter[bytes] = field(default_factory=Counter)
    seen: set[bytes] = field(default_factory=set)
    recovered: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False

    @property
    def lost(self) -> set[bytes]:
        """Confirmed messages that were never received, or not stored."""
        return self.confirmed - (self.seen & self.stored.keys())

    @property
    def doubled(self) -> list[bytes]:
        """Messages that were stored twice."""
        return [body for body, count in self.stored.items() if count > 1]

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until `done`."""
        while not done():
            self.changed.clear()
            await self.changed.wait()

    def settings(self, name: str) -> Recovery:
        """Return settings for quick recovery, with counting."""

        def told(event: RecoveryEvent) -> None:
            if isinstance(event, Recovered):
                self.recovered[name] += 1
                self.problems += [f"{name}: {error}" for error in event.failures]
                self.changed.set()

        return Recovery(
            delay_seconds=0.01, delay_seconds_max=0.5, numbered=self.numbered, on_event=told
        )

    async def publish(self, connection: Connection, name: str) -> None:
        """Publish in windows until the load is over."""
        channel = await connection.channel()
        await channel.exchange_declare(self.queue, "topic")
        await channel.confirm_select()
        number = 0

        async def one(body: bytes) -> None:
            await channel.publish(body, self.queue, "key", PERSISTENT, mandatory=True)
            self.confirmed.add(body)
            self.changed.set()

        while not self.is_over:
            bodies = [b"%s-%d" % (name.encode(), number + i) for i in range(WINDOW)]
            number += WINDOW
            await asyncio.gather(*map(one, bodies))

    async def consume(self, connection: Connection, name: str) -> None:
        """Bind the queue and consume from it; hold an exclusive queue, too."""
        channel = await connection.channel()
        await channel.exchange_declare(self.queue, "topic")
        await channel.queue_declare(self.queue)
        await channel.queue_declare(f"{self.queue}.all")
        for queue in (self.queue, f"{self.queue}.all"):
            await channel.queue_bind(queue, self.queue, "key")
        await channel.queue_declare(f"{self.queue}.{name}", exclusive=True)
        await channel.qos(WINDOW)

        def take(message: Message) -> None:
            self.seen.add(message.body)
            self.changed.set()
            message.ack()

        await channel.consume(self.queue, take)

    async def run(
        self,
        proxy: CutProxy,
        clients: int,
        faults: int,
        fault: Callable[[int], Awaitable[None]],
    ) -> None:
        """Run publishers and consumers through faults, and consume the remaining messages."""
        uri = f"amqp://guest:guest@127.0.0.1:{proxy.port}/?heartbeat=1"
        names = [f"{kind}{number}" for kind in ("c", "p") for number in range(clients)]
        connections = {
            name: await connect(uri, recover=self.settings(name), connection_name=name)
            for name in names
        }
        for name in names[:clients]:
            await self.consume(connections[name], name)
        publishing = [
            asyncio.create_task(self.publish(connections[name], name)) for name in names[clients:]
        ]
        for number in range(faults):
            aim = len(self.confirmed) + STEP
            await self.until(lambda aim=aim: len(self.confirmed) >= aim)  # type: ignore[misc]
            await fault(number)
            await self.until(
                lambda number=number: all(self.recovered[name] > number for name in names)  # type: ignore[misc]
            )
        self.is_over = True
        await asyncio.gather(*publishing)
        await self.until(lambda: self.confirmed <= self.seen)
        channel = await connections[names[0]].channel()
        for name in names[:clients]:
            one = await connections[name].channel()
            await one.queue_declare(f"{self.queue}.{name}", passive=True)
        for connection in connections.values():
            if connection is not channel.connection:
                await connection.close()
        await self.read_all(channel)
        await channel.queue_delete(self.queue)
        await channel.exchange_delete(self.queue)
        await channel.connection.close()

    async def read_all(self, channel: Channel) -> None:
        """Consume the messages of the second queue, and delete it."""
        queue = f"{self.queue}.all"
        count = (await channel.queue_declare(queue, passive=True)).message_count
        await channel.qos(1000)
        async with channel.consume(queue, no_ack=True) as messages:
            for _ in range(count):
                self.stored[(await anext(messages)).body] += 1
        await channel.queue_delete(queue)


async def bad_network(proxy: CutProxy, number: int) -> None:
    """Cut, reset or stall all connections, in turn."""
    kinds = (proxy.cut, proxy.reset, proxy.cut, proxy.reset, proxy.stall)
    kinds[number % len(kinds)]()
