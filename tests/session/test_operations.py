"""A long operation that a client asked for, and its end: by an answer, by an error, by nobody."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from leveret.broker.scheduler.costs import SLICE
from leveret.errors import AmqpError, NotAllowed, NotFound
from leveret.names import Name
from leveret.wire.methods import QueueDelete, QueueDeleteOk
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

DELETE = QueueDelete.CLASS_ID << 16 | QueueDelete.METHOD_ID


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def peer(node: Node) -> Peer:
    """A client whose last method was a queue.delete on channel 1."""
    peer = node.connect(1, 2)
    peer.connection.current.method(1, DELETE)
    return peer


def operation(slices: int, error: AmqpError | None = None) -> Iterator[int]:
    """Something that takes so many slices, and fails then."""
    for _ in range(slices):
        yield SLICE
    if error is not None:
        raise error


def test_one_that_fails_at_once_raises(node: Node, peer: Peer) -> None:
    with pytest.raises(NotFound):
        peer.connection.start(operation(0, NotFound("gone")))
    assert peer.connection.halted == 0
    assert peer.connection.work is None


@pytest.mark.parametrize("slices", [1, 3])
def test_one_that_fails_late_closes_its_channel_and_the_input_goes_on(
    node: Node, peer: Peer, slices: int
) -> None:
    """The error names the method that asked for it, whatever others have asked meanwhile."""
    peer.connection.start(operation(slices, NotFound("gone")))
    peer.feed(method(2, "queue.declare", queue="q"))
    other = node.connect()
    other.declare("other")
    closed = peer.expect(1, "channel.close")
    assert (closed.code, closed.class_id, closed.method_id) == (404, 50, 40)
    assert closed.text == "NOT_FOUND - gone"
    peer.expect(2, "queue.declare-ok")
    peer.send(method(1, "channel.close-ok"))
    peer.call(1, "channel.open")


def test_the_end_of_its_channel_may_be_long_too(node: Node, peer: Peer) -> None:
    """The input goes on when all that the channel held is released."""
    count = 3 * SLICE
    peer.declare("q")
    peer.send(*[publish(2, "", "q", b"m")] * count)
    peer.send(method(1, "basic.consume", queue="q"))
    node.run()
    assert node.classic("q").unacked_count == count
    assert peer.names() == ["basic.consume-ok"] + ["basic.deliver"] * count
    peer.connection.current.method(1, DELETE)
    peer.connection.start(operation(1, NotFound("gone")))
    peer.feed(method(2, "queue.declare", queue="q", passive=True))
    node.run()
    peer.flush()
    assert peer.expect(1, "channel.close").code == 404
    assert peer.expect(2, "queue.declare-ok").message_count == count


def test_one_that_fails_late_with_a_hard_error_closes_the_connection(
    node: Node, peer: Peer
) -> None:
    peer.connection.start(operation(2, NotAllowed("never")))
    peer.feed(method(2, "queue.declare", queue="q"))
    node.run()
    closed = peer.expect(0, "connection.close")
    assert (closed.code, closed.class_id, closed.method_id) == (530, 50, 40)
    assert "queue.declare-ok" not in peer.names()


@pytest.mark.parametrize("error", [NotFound("gone"), NotAllowed("never")])
def test_one_that_fails_when_nobody_waits_any_more_tells_nobody(
    node: Node, peer: Peer, error: AmqpError
) -> None:
    peer.connection.start(operation(3, error))
    said = len(peer.connection.log)
    peer.lose()
    node.run()
    assert node.rests()
    assert [text for level, text in peer.connection.log[said:] if level == "error"] == []


def test_its_answer_waits_for_what_it_recorded(node: Node, peer: Peer) -> None:
    """In any of its slices, and not for what others record meanwhile."""

    def recording() -> Iterator[int]:
        node.vhost.exchanges.declare(Name("e"), "fanout", True, False, False, {})
        yield SLICE
        node.connect().feed(method(1, "queue.declare", queue="q", durable=True))
        yield SLICE
        peer.connection.reply(1, QueueDeleteOk(0))

    peer.connection.start(recording())
    node.rest()
    peer.flush()
    assert peer.names() == []
    node.sync()
    peer.expect(1, "queue.delete-ok")


def test_nothing_of_it_is_kept_when_it_is_over(node: Node, peer: Peer) -> None:
    class Held:
        pass

    def holding(held: Held) -> Iterator[int]:
        yield SLICE
        assert held is not None

    gc.collect()
    gc.disable()
    try:
        held = Held()
        left = weakref.ref(held)
        peer.connection.start(holding(held))
        del held
        assert left() is not None
        node.run()
        assert left() is None
    finally:
        gc.enable()
