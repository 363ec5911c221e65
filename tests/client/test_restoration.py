"""What a client does when something comes between while it recovers a lost connection."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import pytest

from leveret.client import (
    BasicProperties,
    Connection,
    DeliveryLost,
    GaveUp,
    Reconnecting,
    Recovered,
    Recovery,
    RecoveryEvent,
    blocking,
    connect,
)
from leveret.client.shell.connection import Prepared
from leveret.errors import NotFound, ResourceLocked
from leveret.wire.methods import (
    BasicConsume,
    BasicConsumeOk,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionTune,
)
from support.wire.client_peer import TUNE, Line, ScriptedBroker, frame
from support.wire.cut_proxy import CutProxy

SECONDS = 60.0


def quick(on_event: Callable[[RecoveryEvent], object] | None = None, **limits: Any) -> Recovery:
    """Return quick recovery."""
    return Recovery(delay_seconds=0.01, delay_seconds_max=0.05, on_event=on_event, **limits)


def free_port() -> int:
    """Return a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test in a loop of its own, in bounded time."""

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await test()

    asyncio.run(bounded())


class Told:
    """Waits for the next event of a kind."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[RecoveryEvent] = asyncio.Queue()

    def __call__(self, event: RecoveryEvent) -> None:
        """Take an event."""
        self._events.put_nowait(event)

    async def next(self, kind: type) -> RecoveryEvent:
        """Return the next event of the kind."""
        while not isinstance(event := await self._events.get(), kind):
            pass
        return event


async def cut(proxy: CutProxy, told: Told) -> None:
    """Cut all connections and wait until this one is recovered."""
    proxy.cut()
    await told.next(Recovered)


def test_a_connection_closes_after_its_recovery_was_cancelled(proxy: CutProxy) -> None:
    # So do tasks at the end of `asyncio.run`, which cancels the recovery first or last.
    async def test() -> None:
        told = Told()
        connection = await connect(proxy.uri, recover=quick(told))
        proxy.lead_to(free_port())
        proxy.cut()
        await told.next(Reconnecting)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_coro().__qualname__.endswith("_recover"):  # type: ignore[union-attr]
                task.cancel()
                await asyncio.wait([task])
        await connection.close()
        assert not connection.is_recovering

    run(test)


def test_attempts_that_fail_leave_no_exception_behind(proxy: CutProxy) -> None:
    noise: list[object] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: noise.append(what))
        told = Told()
        addresses = [proxy.uri, f"amqp://127.0.0.1:{free_port()}/"]
        async with connect(addresses, recover=quick(told, reconnect_attempts_max=6)) as connection:
            proxy.lead_to(free_port())
            proxy.cut()
            await told.next(GaveUp)
            assert not connection.is_open
        gc.collect()

    run(test)
    assert noise == []


def test_the_queue_of_a_closed_channel_stays_deleted(proxy: CutProxy, name: str) -> None:
    async def test() -> None:
        told = Told()
        async with connect(proxy.uri, recover=quick(told)) as connection:
            channel = await connection.channel()
            await channel.queue_declare(name, auto_delete=True)
            await channel.consume(name, lambda message: message.ack())
            await channel.close()
            await cut(proxy, told)
            with pytest.raises(NotFound):
                await (await connection.channel()).queue_declare(name, passive=True)

    run(test)


def test_a_queue_answers_to_all_of_its_names(proxy: CutProxy) -> None:
    async def test() -> None:
        told = Told()
        async with connect(proxy.uri, recover=quick(told)) as connection:
            channel = await connection.channel()
            await channel.confirm_select()
            first = (await channel.queue_declare(exclusive=True)).queue
            await cut(proxy, told)
            second = connection.current_queue_name(first)
            assert second != first
            await channel.queue_bind(second, "amq.direct", second)
            await cut(proxy, told)
            assert connection.current_queue_name(second) == connection.current_queue_name(first)
            await channel.publish(b"bound", "amq.direct", second, mandatory=True)
            await channel.publish(b"named", "", second, mandatory=True)
            messages = [await channel.get(second, no_ack=True) for _ in range(2)]
            assert [message.body for message in messages if message] == [b"bound", b"named"]
            await channel.queue_delete(second)
            await cut(proxy, told)
            with pytest.raises(NotFound):
                await channel.queue_declare(connection.current_queue_name(first), passive=True)

    run(test)


def test_what_another_holds_is_left_out_in_time(
    proxy: CutProxy, broker_uri: str, name: str
) -> None:
    async def test() -> None:
        told = Told()
        recovery = quick(told, exclusive_seconds_max=0)
        async with (
            connect(proxy.uri, recover=recovery) as connection,
            connect(broker_uri) as other,
        ):
            channel = await connection.channel()
            await channel.queue_declare(name, exclusive=True)
            proxy.lead_to(free_port())
            proxy.cut()
            await told.next(Reconnecting)
            await take(other, name)
            proxy.lead_to(urlsplit(broker_uri).port or 0)
            recovered = await told.next(Recovered)
            assert isinstance(recovered, Recovered)
            assert [type(error) for error in recovered.failures] == [ResourceLocked]

    run(test)


async def take(connection: Connection, queue: str) -> None:
    """Declare an exclusive queue as soon as the broker has missed who had it."""
    while True:
        try:
            await (await connection.channel()).queue_declare(queue, exclusive=True)
        except ResourceLocked:
            continue
        return


def test_all_deliveries_at_once_are_refused_after_the_consumer_is_gone(
    proxy: CutProxy, name: str
) -> None:
    async def test() -> None:
        told = Told()
        async with connect(proxy.uri, recover=quick(told)) as connection:
            channel = await connection.channel()
            await channel.queue_declare(name)
            await channel.publish(b"1", routing_key=name)
            consumer = await channel.consume(name)
            await anext(consumer)
            await consumer.cancel()
            await cut(proxy, told)
            await anext(await channel.consume(name))
            with pytest.raises(DeliveryLost):
                channel.ack(multiple=True)
            channel.ack(multiple=True)

    run(test)


# -- a broker with a script ------------------------------------------------------------------------


def test_a_channel_can_be_closed_while_it_is_restored() -> None:
    """The broker answers the consumer's second start only after the channel's close."""
    asked: list[asyncio.Event] = []
    loops: list[asyncio.AbstractEventLoop] = []

    def script(line: Line) -> None:
        line.handshake()
        number = line.open_channel()
        line.receive(BasicConsume)
        line.send(frame(number, BasicConsumeOk(consumer_tag="tag")))
        line.socket.close()
        line = broker.next_line()
        line.handshake()
        number = line.open_channel()
        line.receive(BasicConsume)
        loops[0].call_soon_threadsafe(asked[0].set)
        line.receive(ChannelClose)
        line.send(frame(number, BasicConsumeOk(consumer_tag="tag")))
        line.send(frame(number, ChannelCloseOk()))
        other = line.open_channel()
        assert other == number
        line.answer_close()
        line.socket.close()

    async def test() -> None:
        asked.append(asyncio.Event())
        loops.append(asyncio.get_running_loop())
        async with connect(broker.uri, recover=quick()) as connection:
            channel = await connection.channel()
            consumer = await channel.consume("q", consumer_tag="tag")
            await asked[0].wait()
            await channel.close()
            with pytest.raises(StopAsyncIteration):
                await anext(consumer)
            await connection.channel()

    with ScriptedBroker(script) as broker:
        run(test)


def test_a_channel_whose_close_was_lost_is_not_opened_again() -> None:
    def script(line: Line) -> None:
        line.handshake()
        line.open_channel()
        line.receive(ChannelClose)
        line.socket.close()
        line = broker.next_line()
        line.handshake()
        line.open_channel()
        line.answer_close()
        line.socket.close()

    async def test() -> None:
        async with connect(broker.uri, recover=quick()) as connection:
            await (await connection.channel()).close()
            channel = await connection.channel()
            assert connection.channels == (channel,)

    with ScriptedBroker(script) as broker:
        run(test)


SMALL = ConnectionTune(channel_max=2047, frame_max=4096, heartbeat=60)


def smaller_frames(line: Line, broker: ScriptedBroker) -> None:
    """Take a publish, hang up before its confirm, and agree on smaller frames then."""
    line.handshake(TUNE)
    number = line.open_channel()
    line.receive(ConfirmSelect)
    line.send(frame(number, ConfirmSelectOk()))
    line.receive(BasicPublish)
    line.socket.close()
    line = broker.next_line()
    line.handshake(SMALL)
    number = line.open_channel()
    line.receive(ConfirmSelect)
    line.send(frame(number, ConfirmSelectOk()))
    line.socket.close()


LARGE = BasicProperties(headers={"long": "x" * 8000})


def test_what_cannot_be_sent_again_ends_the_connection_asyncio() -> None:
    async def test() -> None:
        async with connect(broker.uri, recover=quick()) as connection:
            channel = await connection.channel()
            await channel.confirm_select()
            with pytest.raises(ValueError, match="4096"):
                await channel.publish(b"", routing_key="q", properties=LARGE)
            assert isinstance(connection.error, ValueError)

    with ScriptedBroker(lambda line: smaller_frames(line, broker)) as broker:
        run(test)


def test_what_cannot_be_sent_again_ends_the_connection_blocking() -> None:
    with (
        ScriptedBroker(lambda line: smaller_frames(line, broker)) as broker,
        blocking.connect(broker.uri, recover=quick()) as connection,
    ):
        channel = connection.channel()
        channel.confirm_select()
        with pytest.raises(ValueError, match="4096"):
            channel.publish(b"", routing_key="q", properties=LARGE)
        assert isinstance(connection.error, ValueError)


class Interrupted(blocking.Connection):
    """A connection that Ctrl-C interrupts while it opens a socket; `interrupts` says how often."""

    interrupts = 0

    def dial(self, deadline: float) -> None:
        """Open a socket, or be interrupted."""
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        super().dial(deadline)


def test_an_attempt_that_was_interrupted_is_followed_by_another(proxy: CutProxy) -> None:
    attempts: list[int] = []

    def note(event: RecoveryEvent) -> None:
        if isinstance(event, Reconnecting):
            attempts.append(event.attempt)

    prepared = Prepared(proxy.uri, {"recover": quick(note)})
    with Interrupted(prepared.addresses[0], prepared) as connection:
        connection.open(time.monotonic() + SECONDS)
        channel = connection.channel()
        proxy.cut()
        connection.interrupts = 1
        with pytest.raises(KeyboardInterrupt):
            channel.qos(1)
        assert attempts == [1, 2]
        channel.qos(1)
        assert connection.is_open
