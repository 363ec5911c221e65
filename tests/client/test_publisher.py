"""Publishing encoded messages by the window: confirms in any order, refusals, blocks, losses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.client import ConnectionLost, Nacked
from leveret.client.blocking import connect
from leveret.client.blocking.publisher import BulkPublisher
from leveret.client.publish_frames import PublishFrames
from leveret.errors import NotFound
from leveret.wire.methods import (
    BasicAck,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionUnblocked,
)
from support.wire.client_peer import SECONDS_MAX, Line, ScriptedBroker, content, frame

Script = Callable[[Line], None]

#: A timeout that a test waits out, and that the script's answers on a busy machine keep.
TIMEOUT_MS = 3000


def confirming(line: Line) -> None:
    """Open a connection and a channel in confirm mode."""
    line.handshake().open_channel()
    line.receive(ConfirmSelect)
    line.send(frame(1, ConfirmSelectOk()))


def take(line: Line, count: int) -> None:
    """Take publishes."""
    for _ in range(count):
        line.receive(BasicPublish)


def publisher(broker: ScriptedBroker, window: int = 4, timeout_ms: int = 60_000) -> BulkPublisher:
    """Return a publisher on a connection to the script."""
    return BulkPublisher(connect(broker.uri, recover=False), window, timeout_ms)


def publishes(count: int) -> bytes:
    """Return publishes of `count` messages on channel 1."""
    return PublishFrames(1, 131_072).publish("e", "k", True, b"\0\0", b"body") * count


def send_and_wait(bulk: BulkPublisher, count: int) -> None:
    """Send messages and wait for their confirms."""
    bulk.send(publishes(count), count)
    bulk.wait_until_confirmed()


def test_a_full_window_waits_for_confirms_in_any_order() -> None:
    def script(line: Line) -> None:
        confirming(line)
        take(line, 4)
        line.send(frame(1, BasicAck(2)), frame(1, BasicAck(4)))
        line.send(frame(1, BasicAck(1)))
        take(line, 3)  # 3 still waits: there is room for three
        line.send(frame(1, BasicAck(0, multiple=True)))
        line.wait_for_end()

    with ScriptedBroker(script) as broker:
        bulk = publisher(broker)
        bulk.send(publishes(4), 4)
        send_and_wait(bulk, 3)
        assert (bulk.published_count, bulk.lowest_unconfirmed) == (7, 8)
        bulk.channel.connection.abort()


def test_a_piece_larger_than_the_window_goes_alone() -> None:
    def script(line: Line) -> None:
        confirming(line)
        take(line, 1)
        line.send(frame(1, BasicAck(1)))
        take(line, 9)
        line.send(frame(1, BasicAck(10, multiple=True)))
        line.answer_close()

    with ScriptedBroker(script) as broker:
        bulk = publisher(broker)
        bulk.send(publishes(1), 1)
        send_and_wait(bulk, 9)
        assert bulk.published_count == 10
        bulk.channel.connection.close()


def test_a_refused_message_is_an_error() -> None:
    """Behaviour 26 (reject-publish)."""

    def script(line: Line) -> None:
        confirming(line)
        take(line, 3)
        line.send(frame(1, BasicAck(1)), frame(1, BasicNack(3, multiple=True)))
        line.answer_close()

    with ScriptedBroker(script) as broker:
        bulk = publisher(broker)
        with pytest.raises(Nacked) as refused:
            send_and_wait(bulk, 3)
        assert refused.value.sequences == (2,)
        bulk.channel.connection.close()


def test_what_comes_back_is_there_when_all_is_confirmed() -> None:
    """Behaviour 24 (return before confirm): a return comes before the confirm of its message."""

    def script(line: Line) -> None:
        confirming(line)
        take(line, 2)
        line.send(content(1, BasicReturn(312, "NO_ROUTE", "e", "k"), b"body"))
        line.send(frame(1, BasicAck(2, multiple=True)))
        line.answer_close()

    with ScriptedBroker(script) as broker:
        bulk = publisher(broker)
        send_and_wait(bulk, 2)
        assert [(m.reply_code, m.body) for m in bulk.take_returned()] == [(312, b"body")]
        bulk.channel.connection.close()


def test_a_broker_that_blocks_publishers_is_waited_for_beyond_the_timeout() -> None:
    def script(line: Line) -> None:
        confirming(line)
        line.send(frame(0, ConnectionBlocked("memory")))
        take(line, 1)  # on its way already, or sent after the block: never refused
        line.send(frame(1, BasicAck(1)))
        line.socket.settimeout(TIMEOUT_MS * 1.2 / 1000)
        with pytest.raises(TimeoutError):
            take(line, 1)
        line.socket.settimeout(SECONDS_MAX)
        line.send(frame(0, ConnectionUnblocked()))
        take(line, 1)
        line.send(frame(1, BasicAck(2)))
        line.answer_close()

    with ScriptedBroker(script) as broker:
        bulk = publisher(broker, timeout_ms=TIMEOUT_MS)
        bulk.channel.session.publish_encoded(publishes(1), 1)
        bulk.wait_until_confirmed()
        assert bulk.channel.connection.blocked_reason == "memory"
        send_and_wait(bulk, 1)
        bulk.channel.connection.close()


def test_a_broker_that_confirms_nothing_is_an_error() -> None:
    def script(line: Line) -> None:
        confirming(line)
        take(line, 2)
        line.send(frame(1, BasicAck(1)))
        line.wait_for_end()

    with ScriptedBroker(script) as broker:
        bulk = publisher(broker, timeout_ms=200)
        bulk.send(publishes(2), 2)
        with pytest.raises(ConnectionLost, match=r"confirmed nothing for .* 1 messages await"):
            bulk.wait_until_confirmed()
        bulk.channel.connection.abort()


def test_the_end_of_the_channel_is_what_is_raised() -> None:
    def script(line: Line) -> None:
        confirming(line)
        take(line, 1)
        line.send(frame(1, ChannelClose(404, "NOT_FOUND - no exchange 'e'", 60, 40)))
        line.receive(ChannelCloseOk)
        line.answer_close()

    with ScriptedBroker(script) as broker:
        bulk = publisher(broker)
        with pytest.raises(NotFound, match="no exchange 'e'"):
            send_and_wait(bulk, 1)
        bulk.channel.connection.close()


def test_a_connection_that_is_lost_is_what_is_raised() -> None:
    def script(line: Line) -> None:
        confirming(line)
        take(line, 1)

    with ScriptedBroker(script) as broker:
        bulk = publisher(broker)
        with pytest.raises(ConnectionLost):
            send_and_wait(bulk, 1)
