"""Recovery over a real broker behind a proxy that cuts: both shells go on by themselves."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from leveret.client import (
    BasicProperties,
    Channel,
    Connection,
    ConnectionLost,
    ConsumerCancelled,
    DeliveryLost,
    Disconnected,
    GaveUp,
    Message,
    Reconnecting,
    Recovered,
    Recovery,
    RecoveryEvent,
    TransactionLost,
    blocking,
    connect,
)
from leveret.client.blocking.link import SocketLink
from leveret.errors import NotFound
from support.wire.cut_proxy import CutProxy

SECONDS = 60.0
PERSISTENT = BasicProperties(delivery_mode=2)


class Events:
    """What a connection told of its recovery, and who waits for something to happen."""

    def __init__(self) -> None:
        self.all: list[RecoveryEvent] = []
        self.recovered = 0
        self._changed = asyncio.Event()

    def __call__(self, event: RecoveryEvent) -> None:
        """Take an event."""
        self.all.append(event)
        self.recovered += isinstance(event, Recovered)
        self._changed.set()

    def changed(self) -> None:
        """Have those who wait look again."""
        self._changed.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until `done`, looking again at each event and change."""
        while not done():
            self._changed.clear()
            await self._changed.wait()

    async def until_recovered(self, count: int) -> None:
        """Wait until the connection has been recovered so many times."""
        await self.until(lambda: self.recovered >= count)

    def settings(self, **settings: object) -> Recovery:
        """Return quick recovery that tells these events."""
        return Recovery(delay_seconds=0.01, delay_seconds_max=0.1, on_event=self, **settings)  # type: ignore[arg-type]


# -- asyncio ---------------------------------------------------------------------------------------


async def opened(proxy: CutProxy, events: Events, **settings: object) -> Connection:
    """Return a connection through the proxy."""
    return await connect(proxy.uri, recover=events.settings(**settings))


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test in a loop of its own, in bounded time."""

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await test()

    asyncio.run(bounded())


def test_publishers_and_consumers_go_on_asyncio(proxy: CutProxy, name: str) -> None:
    count = 2000
    seen: Counter[bytes] = Counter()
    events = Events()

    def handle(message: Message) -> None:
        seen[message.body] += not message.redelivered
        events.changed()
        message.ack()

    async def test() -> None:
        async with await opened(proxy, events) as connection:
            consuming, publishing = await connection.channel(), await connection.channel()
            await publishing.queue_declare(name)
            await publishing.confirm_select()
            await consuming.qos(50)
            await consuming.consume(name, handle)

            async def publish(first: int) -> None:
                for number in range(first, count, 8):
                    await publishing.publish(b"%d" % number, "", name, PERSISTENT)

            def has(more_than: int) -> bool:
                return len(seen) > more_than

            async def cut() -> None:
                for turn in range(20):
                    await events.until(partial(has, turn * count // 25))
                    (proxy.cut, proxy.reset)[turn % 2]()
                    await events.until_recovered(turn + 1)

            await asyncio.gather(cut(), *[publish(first) for first in range(8)])
            await events.until(lambda: len(seen) == count)
            await publishing.queue_delete(name)

    run(test)
    assert events.recovered == 20


def test_everything_is_declared_again_asyncio(proxy: CutProxy, name: str) -> None:
    events = Events()
    got: list[bytes] = []

    def take(message: Message) -> None:
        got.append(message.body)
        events.changed()

    async def test() -> None:
        async with await opened(proxy, events) as connection:
            channel = await connection.channel()
            await channel.exchange_declare(name, "topic", durable=False, auto_delete=True)
            await channel.exchange_declare(f"{name}.2", "fanout", durable=False, auto_delete=True)
            await channel.exchange_bind(f"{name}.2", name, "a.#")
            queue = (await channel.queue_declare(exclusive=True)).queue
            await channel.queue_bind("", f"{name}.2")
            gone = (await channel.queue_declare(f"{name}.gone", exclusive=True)).queue
            await channel.queue_bind(gone, name, "#")
            await channel.queue_delete(gone)
            await channel.confirm_select()
            consumer = await channel.consume(queue, take, no_ack=True, consumer_tag="mine")
            proxy.cut()
            await events.until_recovered(1)
            await channel.publish(b"1", name, "a.b", mandatory=True)
            await channel.publish(b"2", "", queue, mandatory=True)
            await events.until(lambda: got == [b"1", b"2"])
            now = connection.current_queue_name(queue)
            assert now != queue
            assert (await channel.queue_declare(queue, passive=True)).queue == now
            assert consumer.consumer_tag == "mine"
            with pytest.raises(NotFound):
                await (await connection.channel()).queue_declare(gone, passive=True)
            proxy.reset()
            await channel.publish(b"3", "", queue, mandatory=True)
            await events.until(lambda: got == [b"1", b"2", b"3"])

    run(test)
    assert [type(event) for event in events.all[:3]] == [Disconnected, Reconnecting, Recovered]
    assert not events.all[2].failures  # type: ignore[union-attr]


def test_what_was_lost_is_refused_clearly_asyncio(proxy: CutProxy, name: str) -> None:
    events = Events()

    async def test() -> None:
        async with await opened(proxy, events) as connection:
            channel = await connection.channel()
            await channel.queue_declare(name, exclusive=False)
            working = await connection.channel()
            await working.tx_select()
            await working.publish(b"1", "", name)
            await channel.publish(b"2", "", name)
            await working.publish(b"3", "", name)
            await until_count(channel, name, 1)
            message = await channel.get(name)
            assert message is not None
            assert message.body == b"2"
            proxy.cut()
            await events.until_recovered(1)
            with pytest.raises(DeliveryLost):
                message.ack()
            with pytest.raises(DeliveryLost, match="some of the deliveries"):
                channel.ack(multiple=True)
            with pytest.raises(TransactionLost):
                await working.publish(b"4", "", name)
            with pytest.raises(TransactionLost):
                await working.tx_commit()
            await working.publish(b"5", "", name)
            await working.tx_commit()
            await until_count(channel, name, 2)
            bodies = [await channel.get(name), await channel.get(name)]
            assert [(m.body, m.redelivered) for m in bodies if m is not None] == [
                (b"2", True),
                (b"5", False),
            ]
            channel.ack(multiple=True)
            assert await channel.queue_delete(name) == 0

    run(test)


async def until_count(channel: Channel, queue: str, count: int) -> None:
    """Ask until a queue has so many messages ready."""
    while (await channel.queue_declare(queue, passive=True)).message_count != count:
        pass


def test_limits_end_the_connection_asyncio(broker_uri: str, name: str) -> None:
    events = Events()

    async def test() -> None:
        with CutProxy(urlsplit(broker_uri).port or 0) as proxy:
            connection = await opened(proxy, events, reconnect_attempts_max=3)
            channel = await connection.channel()
            await channel.queue_declare(name, exclusive=True)
            await channel.confirm_select()
            consumer = await channel.consume(name)
            proxy.lead_to(1)
            proxy.cut()
            with pytest.raises(ConnectionLost):
                await channel.publish(b"x", "", name)
            with pytest.raises(ConnectionLost):
                await anext(consumer)
            with pytest.raises(ConnectionLost):
                await connection.wait_closed()
            with pytest.raises(ConnectionLost):
                await connection.channel()
            await connection.close()

    run(test)
    kinds = [Disconnected, Reconnecting, Reconnecting, Reconnecting, GaveUp]
    assert [type(event) for event in events.all] == kinds


def test_a_recovery_can_be_closed_asyncio(proxy: CutProxy) -> None:
    events = Events()

    async def test() -> None:
        connection = await connect(
            proxy.uri,
            recover=Recovery(delay_seconds=1000, delay_seconds_max=1000, on_event=events),
        )
        channel = await connection.channel()
        proxy.cut()
        await events.until(lambda: len(events.all) == 2)
        assert connection.is_recovering
        await channel.close()
        await connection.close()
        await connection.wait_closed()

    run(test)
    assert [type(event) for event in events.all] == [Disconnected, Reconnecting]


def test_a_silent_broker_is_left_asyncio(proxy: CutProxy, name: str) -> None:
    events = Events()

    async def test() -> None:
        connection = await connect(f"{proxy.uri}?heartbeat=1", recover=events.settings())
        async with connection:
            channel = await connection.channel()
            await channel.confirm_select()
            await channel.queue_declare(name, exclusive=True)
            proxy.stall()
            await channel.publish(b"x", "", name)

    run(test)
    assert isinstance(events.all[0], Disconnected)
    assert "no data" in str(events.all[0].error)


# -- blocking --------------------------------------------------------------------------------------


def test_publishers_and_consumers_go_on_blocking(proxy: CutProxy, name: str) -> None:
    count = 2000
    events = Events()
    seen: set[bytes] = set()
    begun, ended = threading.Event(), threading.Event()

    def consume() -> None:
        with blocking.connect(proxy.uri, recover=Events().settings()) as connection:
            channel = connection.channel()
            channel.qos(50)
            messages = channel.consume(name)
            begun.set()
            for message in messages:
                seen.add(message.body)
                try:
                    message.ack()
                except DeliveryLost:
                    continue
                if len(seen) == count:
                    ended.set()
                    return

    with blocking.connect(proxy.uri, recover=events.settings()) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        channel.confirm_select()
        consumer = threading.Thread(target=consume, daemon=True)
        consumer.start()
        assert begun.wait(SECONDS)
        for number in range(count):
            channel.publish_nowait(b"%d" % number, "", name, PERSISTENT)
            if number % 100 == 99:
                (proxy.cut, proxy.reset)[number // 100 % 2]()
                channel.wait_for_confirms()
        assert ended.wait(SECONDS)
        consumer.join(SECONDS)
        channel.queue_delete(name)
    assert events.recovered > 0


def test_everything_is_declared_again_blocking(proxy: CutProxy, name: str) -> None:
    events = Events()
    with blocking.connect(proxy.uri, recover=events.settings()) as connection:
        channel = connection.channel()
        channel.exchange_declare(name, "direct", durable=False, auto_delete=True)
        queue = channel.queue_declare(exclusive=True).queue
        channel.queue_bind("", name, "key")
        channel.confirm_select()
        consumer = channel.consume(queue, no_ack=True)
        proxy.cut()
        channel.publish(b"1", name, "key", mandatory=True)
        assert next(consumer).body == b"1"
        proxy.reset()
        channel.publish(b"2", "", queue, mandatory=True)
        assert next(consumer).body == b"2"
        assert connection.current_queue_name(queue) != queue
    assert events.recovered == 2


def test_what_was_lost_is_refused_clearly_blocking(proxy: CutProxy, name: str) -> None:
    events = Events()
    with blocking.connect(proxy.uri, recover=events.settings()) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        channel.confirm_select()
        channel.publish(b"1", "", name)
        message = channel.get(name)
        assert message is not None
        working = connection.channel()
        working.tx_select()
        working.publish(b"2", "", name)
        proxy.cut()
        channel.qos(1)  # it goes on when the connection is recovered
        with pytest.raises(DeliveryLost):
            message.ack()
        with pytest.raises(TransactionLost):
            working.tx_commit()
        again = channel.get(name)
        assert again is not None
        assert again.redelivered
        again.ack()
        assert channel.queue_delete(name) == 0
    assert events.recovered == 1


def test_limits_end_the_connection_blocking(broker_uri: str, name: str) -> None:
    events = Events()
    with CutProxy(urlsplit(broker_uri).port or 0) as proxy:
        recover = events.settings(reconnect_attempts_max=3)
        connection = blocking.connect(proxy.uri, recover=recover)
        channel = connection.channel()
        channel.confirm_select()
        proxy.lead_to(1)
        proxy.cut()
        with pytest.raises(ConnectionLost):
            channel.publish(b"x", "", name)
        with pytest.raises(ConnectionLost):
            connection.channel()
        connection.close()
    kinds = [Disconnected, Reconnecting, Reconnecting, Reconnecting, GaveUp]
    assert [type(event) for event in events.all] == kinds


def test_a_wait_ends_in_time_while_recovering(proxy: CutProxy) -> None:
    recover = Recovery(delay_seconds=1000, delay_seconds_max=1000)
    with blocking.connect(proxy.uri, recover=recover) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        consumer = channel.consume(queue, inactivity_timeout=0.1)
        proxy.cut()
        assert list(consumer) == []
        assert connection.process(0.01) == 0
        assert connection.is_recovering


def test_a_channel_that_was_closed_before_the_loss_refuses_publishes(proxy: CutProxy) -> None:
    recover = Recovery(delay_seconds=1000, delay_seconds_max=1000)
    with blocking.connect(proxy.uri, recover=recover) as connection:
        channel = connection.channel()
        channel.confirm_select()
        with pytest.raises(NotFound):
            channel.publish(b"1", "no-exchange")
        proxy.cut()
        while not connection.is_recovering:
            connection.process()
        for publish in (channel.publish, channel.publish_nowait):
            with pytest.raises(NotFound):
                publish(b"2")


def test_acks_that_meet_the_loss_leave_a_consumer_that_goes_on(
    proxy: CutProxy, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had come is dropped while a message is being taken; the broker delivers it again."""
    delay = "leveret.client.blocking.connection.CLIENT_ACK_DELAY_NS"
    with blocking.connect(proxy.uri, recover=Events().settings()) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        for number in range(10):
            channel.publish(b"%d" % number, "", name)
        consumer = channel.consume(name)
        monkeypatch.setattr(delay, 1 << 62)
        # The first was told of before the others came.
        first, second = next(consumer), next(consumer)
        bodies = {first.body, second.body}
        second.ack()
        assert connection.acks_wait
        monkeypatch.setattr(delay, -1)
        send = SocketLink.send

        def send_after_the_reset(link: SocketLink, data: memoryview) -> int:
            monkeypatch.setattr(SocketLink, "send", send)
            link.wait(False, SECONDS)
            return send(link, data)

        monkeypatch.setattr(SocketLink, "send", send_after_the_reset)
        proxy.reset()
        while len(bodies) < 10:
            bodies.add(next(consumer).body)
        channel.queue_delete(name)


def test_without_recovery_a_loss_ends_the_connection(proxy: CutProxy) -> None:
    with blocking.connect(proxy.uri, recover=False) as connection:
        channel = connection.channel()
        proxy.cut()
        with pytest.raises(ConnectionLost):
            channel.qos(1)
        assert not connection.is_open


# -- consumers that the broker cancels -------------------------------------------------------------


def test_a_cancelled_consumer_finds_its_queue_again_asyncio(broker_uri: str, name: str) -> None:
    events = Events()
    got: list[bytes] = []

    def take(message: Message) -> None:
        got.append(message.body)
        message.ack()
        events.changed()

    async def test() -> None:
        other = await connect(broker_uri)
        async with await connect(broker_uri, recover=events.settings()) as connection, other:
            consuming, channel = await connection.channel(), await other.channel()
            await channel.queue_declare(name)
            await consuming.consume(name, take, consumer_tag="mine")
            await channel.publish(b"1", "", name)
            await events.until(lambda: got == [b"1"])
            await channel.queue_delete(name)
            await channel.queue_declare(name)
            await channel.publish(b"2", "", name)
            await events.until(lambda: got == [b"1", b"2"])
            await channel.queue_delete(name)

    run(test)


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_cancelled_consumer_ends_in_time(broker_uri: str, name: str, by_itself: bool) -> None:
    recover = Recovery(delay_seconds=0.01, delay_seconds_max=0.01, consumer_attempts_max=3)
    with (
        blocking.connect(broker_uri, recover=recover) as connection,
        blocking.connect(broker_uri) as other,
    ):
        channel = connection.channel()
        channel.queue_declare(name)
        consumer = channel.consume(name)
        (connection if by_itself else other).channel().queue_delete(name)
        with pytest.raises(ConsumerCancelled):
            next(consumer)
        assert channel.is_open


def test_a_cancelled_consumer_finds_its_queue_again_blocking(broker_uri: str, name: str) -> None:
    recover = Events().settings()
    with (
        blocking.connect(broker_uri, recover=recover) as connection,
        blocking.connect(broker_uri) as other,
    ):
        consuming, channel = connection.channel(), other.channel()
        channel.queue_declare(name)
        consumer = consuming.consume(name, no_ack=True)
        channel.queue_delete(name)
        channel.queue_declare(name)
        channel.publish(b"1", "", name)
        assert next(consumer).body == b"1"
        channel.queue_delete(name)
