"""Both shells against a scripted broker: what a well-behaved broker seldom does.

Refusals, blocked publishers, silence, sudden ends and both sides writing at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from leveret.client import (
    Channel,
    Connection,
    ConnectionLost,
    InputFull,
    Message,
    Nacked,
    OutputFull,
    Parameters,
    blocking,
    connect,
)
from leveret.errors import ConnectionForced, InternalError, UnexpectedFrame
from leveret.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionTune,
    ConnectionUnblocked,
)
from support.wire.client_peer import Line, ScriptedBroker, content, frame

T = TypeVar("T")

Script = Callable[[Line], None]
SECONDS = 60.0


def in_blocking(script: Script, use: Callable[[blocking.Channel], T]) -> T:
    """Play `script` while `use` uses a channel of the blocking shell."""
    with ScriptedBroker(script) as broker:
        return use(blocking.connect(broker.uri, recover=False).channel())


def in_asyncio(script: Script, use: Callable[[Channel], Coroutine[Any, Any, T]]) -> T:
    """Play `script` while `use` uses a channel of the asyncio shell."""

    async def run(uri: str) -> T:
        async with asyncio.timeout(SECONDS):
            return await use(await (await connect(uri, recover=False)).channel())

    with ScriptedBroker(script) as broker:
        return asyncio.run(run(broker.uri))


# -- publishing ------------------------------------------------------------------------------------


def confirming(line: Line) -> None:
    """Open a connection and a channel in confirm mode."""
    line.handshake().open_channel()
    line.receive(ConfirmSelect)
    line.send(frame(1, ConfirmSelectOk()))


def nacking(line: Line) -> None:
    """Refuse the first publish and of a window of three the last two."""
    confirming(line)
    line.receive(BasicPublish)
    line.send(frame(1, BasicNack(1)))
    for _ in range(3):
        line.receive(BasicPublish)
    line.send(frame(1, BasicAck(2)), frame(1, BasicNack(4, multiple=True)))
    line.answer_close()


def test_refused_publishes_blocking() -> None:
    """Behaviour 26 (reject-publish)."""

    def use(channel: blocking.Channel) -> None:
        channel.confirm_select()
        with pytest.raises(Nacked) as one:
            channel.publish(b"1")
        for body in (b"2", b"3", b"4"):
            channel.publish_nowait(body)
        with pytest.raises(Nacked) as two:
            channel.wait_for_confirms()
        assert (one.value.sequences, two.value.sequences) == ((1,), (3, 4))
        channel.connection.close()

    in_blocking(nacking, use)


def test_refused_publishes_asyncio() -> None:
    """Behaviour 26 (reject-publish)."""

    async def use(channel: Channel) -> None:
        await channel.confirm_select()
        with pytest.raises(Nacked) as one:
            await channel.publish(b"1")
        for body in (b"2", b"3", b"4"):
            channel.publish_nowait(body)
        with pytest.raises(Nacked) as two:
            await channel.wait_for_confirms()
        assert (one.value.sequences, two.value.sequences) == ((1,), (3, 4))
        await channel.connection.close()

    in_asyncio(nacking, use)


class Holding:
    """A broker that holds publishers; `publishes` counts what came before it let go."""

    def __init__(self, hold: bytes, release: bytes, answer: type[ChannelFlowOk] | None) -> None:
        self.hold = hold
        self.release = release
        self.answer = answer

    def __call__(self, line: Line) -> None:
        """Hold before the reply to the first request; let go after the second came."""
        line.handshake().open_channel()
        line.receive(BasicQos)
        line.send(self.hold, frame(1, BasicQosOk()))
        if self.answer is not None:
            line.receive(self.answer)
        line.receive(BasicQos)  # a publish here would be the wrong method
        line.send(self.release, frame(1, BasicQosOk()))
        if self.answer is not None:
            line.receive(self.answer)
        line.receive(BasicPublish)
        line.answer_close()


def blocked() -> Holding:
    """Return a broker that sends connection.blocked."""
    hold = frame(0, ConnectionBlocked("low on memory"))
    return Holding(hold, frame(0, ConnectionUnblocked()), None)


def stopped() -> Holding:
    """Return a broker that sends channel.flow."""
    hold = frame(1, ChannelFlow(active=False))
    return Holding(hold, frame(1, ChannelFlow(active=True)), ChannelFlowOk)


@pytest.mark.parametrize("holding", [blocked, stopped])
def test_publishers_wait_while_the_broker_holds_them(holding: Callable[[], Holding]) -> None:
    """Behaviour 16 (alarms), and channel.flow."""

    async def use(channel: Channel) -> None:
        await channel.qos(1)
        publishing = asyncio.create_task(channel.publish(b"x"))
        await asyncio.sleep(0)
        await channel.qos(1)
        await publishing
        await channel.connection.close()

    in_asyncio(holding(), use)


@pytest.mark.parametrize("publish", ["publish", "publish_nowait"])
def test_a_blocking_publisher_waits_until_the_broker_lets_it(publish: str) -> None:
    held = threading.Event()

    def script(line: Line) -> None:
        line.handshake().open_channel()
        line.receive(BasicQos)
        line.send(frame(0, ConnectionBlocked("low on memory")), frame(1, BasicQosOk()))
        assert held.wait(SECONDS)
        line.send(frame(0, ConnectionUnblocked()))
        line.receive(BasicPublish)
        line.answer_close()

    def use(channel: blocking.Channel) -> None:
        channel.qos(1)
        reasons = [channel.connection.blocked_reason]
        held.set()
        getattr(channel, publish)(b"x")
        reasons.append(channel.connection.blocked_reason)
        assert reasons == ["low on memory", None]
        channel.connection.close()

    in_blocking(script, use)


def test_output_that_the_broker_does_not_read_is_bounded() -> None:
    full = threading.Event()

    def script(line: Line) -> None:
        line.handshake().open_channel()
        assert full.wait(SECONDS)

    async def use(channel: Channel) -> None:
        channel.connection.output_bytes_max = 1_000_000
        body = bytes(100_000)

        async def publish_until_full() -> None:
            for _ in range(1000):
                channel.publish_nowait(body)
                await asyncio.sleep(0)

        with pytest.raises(OutputFull, match="wait for the broker to read"):
            await publish_until_full()
        waiting = asyncio.create_task(channel.publish(body))
        await asyncio.sleep(0)
        assert not waiting.done()
        full.set()
        with pytest.raises(ConnectionLost):
            await waiting

    in_asyncio(script, use)


def test_both_sides_may_write_at_once() -> None:
    """A blocking client reads while the broker does not: neither waits for the other for ever."""
    size = 16_000_000
    deliver = BasicDeliver("ctag", 1, False, "", "q")

    def script(line: Line) -> None:
        confirming(line)
        line.receive(BasicConsume)
        line.send(frame(1, BasicConsumeOk("ctag")), content(1, deliver, bytes(size)))
        line.receive(BasicPublish)
        line.send(frame(1, BasicAck(1)))
        line.answer_close()

    def use(channel: blocking.Channel) -> None:
        channel.confirm_select()
        consumer = channel.consume("q")
        channel.publish(bytes(size))
        assert len(next(consumer).body) == size
        channel.connection.close()

    in_blocking(script, use)


# -- consuming -------------------------------------------------------------------------------------


def flooding(line: Line) -> None:
    """Deliver 300 kB that nobody asked for, and read how the client ends."""
    line.handshake().open_channel()
    line.receive(BasicConsume)
    line.send(frame(1, BasicConsumeOk("ctag")))
    deliver = BasicDeliver("ctag", 1, False, "", "q")
    line.send(*[content(1, deliver, bytes(100_000)) for _ in range(3)])
    _, close = line.receive(ConnectionClose)
    assert close.reply_code == 506
    assert "channel.qos()" in close.reply_text


def test_input_is_bounded_blocking() -> None:
    def use(channel: blocking.Channel) -> None:
        channel.connection.input_bytes_max = 200_000
        consumer = channel.consume("q")
        with pytest.raises(InputFull):
            channel.qos(1)
        with pytest.raises(InputFull):
            next(consumer)

    def script(line: Line) -> None:
        line.handshake().open_channel()
        line.receive(BasicConsume)
        line.send(frame(1, BasicConsumeOk("ctag")))
        line.receive(BasicQos)
        deliver = BasicDeliver("ctag", 1, False, "", "q")
        line.send(*[content(1, deliver, bytes(100_000)) for _ in range(3)])
        line.receive(ConnectionClose)

    in_blocking(script, use)


def test_input_is_bounded_asyncio() -> None:
    async def use(channel: Channel) -> None:
        channel.connection.input_bytes_max = 200_000
        await channel.consume("q")
        with pytest.raises(InputFull):
            await channel.connection.wait_closed()

    in_asyncio(flooding, use)


def test_input_at_its_bound_is_taken() -> None:
    deliver = BasicDeliver("ctag", 1, False, "", "q")

    def script(line: Line) -> None:
        line.handshake().open_channel()
        line.receive(BasicConsume)
        line.send(frame(1, BasicConsumeOk("ctag")))
        line.send(content(1, deliver, bytes(99_488)), content(1, deliver, bytes(99_488)))
        line.answer_close()

    def use(channel: blocking.Channel) -> None:
        channel.connection.input_bytes_max = 200_000
        consumer = channel.consume("q")
        while channel.connection.input_bytes < 200_000:
            channel.connection.process(timeout=0.01)
        assert [len(next(consumer).body) for _ in range(2)] == [99_488, 99_488]
        channel.connection.close()

    in_blocking(script, use)


def one_large(line: Line) -> None:
    """Deliver one message of more than is held by default in these tests, then the next."""
    deliver = BasicDeliver("ctag", 1, False, "", "q")
    line.handshake().open_channel()
    line.receive(BasicConsume)
    line.send(frame(1, BasicConsumeOk("ctag")))
    for _ in range(2):
        line.send(content(1, deliver, bytes(200_001)))
        line.receive(BasicAck)
    line.answer_close()


def test_one_message_larger_than_the_bound_is_taken_blocking() -> None:
    """Messages of the largest size come one by one under a prefetch limit of 1."""

    def use(channel: blocking.Channel) -> None:
        channel.connection.input_bytes_max = 200_000
        consumer = channel.consume("q")
        for _ in range(2):
            message = next(consumer)
            assert len(message.body) == 200_001
            message.ack()
        channel.connection.close()

    in_blocking(one_large, use)


def test_one_message_larger_than_the_bound_is_taken_asyncio() -> None:
    async def use(channel: Channel) -> None:
        channel.connection.input_bytes_max = 200_000
        consumer = await channel.consume("q")
        for _ in range(2):
            message = await anext(consumer)
            assert len(message.body) == 200_001
            message.ack()
        await channel.connection.close()

    in_asyncio(one_large, use)


def test_a_callback_and_the_cancel_of_its_consumer() -> None:
    """Messages that come after basic.cancel and before cancel-ok still belong to the consumer."""
    deliver = BasicDeliver("ctag", 1, False, "", "q")

    def script(line: Line) -> None:
        line.handshake().open_channel()
        line.receive(BasicConsume)
        line.send(frame(1, BasicConsumeOk("ctag")))
        line.receive(BasicCancel)
        line.send(content(1, deliver, b"late"), frame(1, BasicCancelOk("ctag")))
        line.answer_close()

    def use(channel: blocking.Channel) -> None:
        seen: list[Message] = []
        consumer = channel.consume("q", seen.append)
        consumer.cancel()
        channel.connection.process()
        assert [message.body for message in seen] == [b"late"]
        channel.connection.close()

    in_blocking(script, use)


# -- ends ------------------------------------------------------------------------------------------


def hanging_up(line: Line) -> None:
    """Hang up instead of a reply."""
    line.handshake().open_channel()
    line.receive(BasicQos)


def forcing(line: Line) -> None:
    """Close the connection instead of a reply."""
    line.handshake().open_channel()
    line.receive(BasicQos)
    line.send(frame(0, ConnectionClose(320, "CONNECTION_FORCED - shutdown")))
    line.receive(ConnectionCloseOk)


def failing(line: Line) -> None:
    """Close the connection for the broker's own fault and hang up at once."""
    line.handshake().open_channel()
    line.receive(BasicQos)
    line.send(frame(0, ConnectionClose(541, "INTERNAL_ERROR")))


def babbling(line: Line) -> None:
    """Send content that belongs to nothing."""
    line.handshake().open_channel()
    line.receive(BasicQos)
    line.send(content(1, BasicQosOk(), b"what?"))
    _, close = line.receive(ConnectionClose)
    assert close.reply_code == 505


ENDS = [
    (hanging_up, ConnectionLost),
    (forcing, ConnectionForced),
    (failing, InternalError),
    (babbling, UnexpectedFrame),
]


@pytest.mark.parametrize(("script", "kind"), ENDS)
def test_the_connection_ends_under_a_blocking_call(script: Script, kind: type[Exception]) -> None:
    def use(channel: blocking.Channel) -> None:
        connection = channel.connection
        if script is babbling:
            channel.qos(1)
        for _ in range(2):
            with pytest.raises(kind):
                channel.qos(1)
            with pytest.raises(kind):
                connection.channel()
            with pytest.raises(kind):
                connection.process()
        connection.close()

    in_blocking(script, use)


@pytest.mark.parametrize(("script", "kind"), ENDS)
def test_the_connection_ends_under_an_asyncio_call(script: Script, kind: type[Exception]) -> None:
    async def use(channel: Channel) -> None:
        connection = channel.connection
        if script is babbling:
            await channel.qos(1)
            with pytest.raises(kind):
                await connection.wait_closed()
        for _ in range(2):
            with pytest.raises(kind):
                await channel.qos(1)
            with pytest.raises(kind):
                await connection.channel()
            with pytest.raises(kind):
                await connection.wait_closed()
        await connection.close()

    in_asyncio(script, use)


def test_a_channel_that_both_sides_close() -> None:
    def script(line: Line) -> None:
        line.handshake().open_channel()
        line.receive(ChannelClose)
        line.send(frame(1, ChannelClose(404, "NOT_FOUND")))
        line.receive(ChannelCloseOk)
        line.send(frame(1, ChannelCloseOk()))
        assert line.open_channel() == 1
        line.answer_close()

    def use(channel: blocking.Channel) -> None:
        channel.close()
        assert channel.connection.channel().number == 1
        channel.connection.close()

    in_blocking(script, use)


def mute(line: Line) -> None:
    """Never answer a close."""
    line.handshake()
    line.receive(ConnectionClose)
    line.wait_for_end()


def deaf(line: Line) -> None:
    """Never answer anything."""
    line.wait_for_end()


def impatient(broker: ScriptedBroker) -> Parameters:
    """Return parameters that wait for 0.2 s at most."""
    return Parameters("127.0.0.1", broker.port, connection_timeout_ms=200)


def test_a_broker_that_never_answers_blocking() -> None:
    with ScriptedBroker(deaf) as broker, pytest.raises(TimeoutError):
        blocking.connect(impatient(broker))
    with ScriptedBroker(mute) as broker:
        connection = blocking.connect(broker.uri, recover=False)
        connection.parameters = impatient(broker)
        connection.close()
        assert not connection.is_open


def test_a_broker_that_never_answers_asyncio() -> None:
    async def open_and_close(broker: ScriptedBroker) -> Connection:
        connection = await connect(broker.uri, recover=False)
        connection.parameters = impatient(broker)
        await connection.close()
        return connection

    with ScriptedBroker(deaf) as broker, pytest.raises(TimeoutError):
        asyncio.run(connect(impatient(broker)))
    with ScriptedBroker(mute) as broker:
        assert not asyncio.run(open_and_close(broker)).is_open


# -- heartbeats ------------------------------------------------------------------------------------

BEATING = ConnectionTune(channel_max=10, frame_max=131_072, heartbeat=1)


def waiting_for_heartbeats(line: Line) -> None:
    """Answer only after two heartbeats, having sent some."""
    line.handshake(BEATING).open_channel()
    line.receive(BasicQos)
    line.receive_heartbeats(2)
    line.send(frame(1, BasicQosOk()))
    line.answer_close()


def silent(line: Line) -> None:
    """Fall silent after the handshake."""
    line.handshake(BEATING).open_channel()
    line.wait_for_end()


def test_heartbeats_blocking() -> None:
    """Section 4.2.7."""

    def use(channel: blocking.Channel) -> None:
        channel.qos(1)
        channel.connection.close()

    in_blocking(waiting_for_heartbeats, use)

    def lose(channel: blocking.Channel) -> None:
        with pytest.raises(ConnectionLost, match="no data"):
            channel.connection.process(None)

    in_blocking(silent, lose)


def test_heartbeats_asyncio() -> None:
    """Section 4.2.7."""

    async def use(channel: Channel) -> None:
        await channel.qos(1)
        await channel.connection.close()

    in_asyncio(waiting_for_heartbeats, use)

    async def lose(channel: Channel) -> None:
        with pytest.raises(ConnectionLost, match="no data"):
            await channel.connection.wait_closed()

    in_asyncio(silent, lose)
