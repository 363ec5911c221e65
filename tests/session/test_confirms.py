"""Confirms: each publish gets one, of its kind, in order, and none before its sync.

Sources: RabbitMQ's publisher confirms and behaviours 24 to 27 (returns, acks and nacks) and 30
(confirm numbering).
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.session.channel.confirms import CONFIRMS_APART_MAX
from support.node.core import Node, Peer
from support.wire.raw import Method
from support.wire.raw_codec import method, publish


def confirming(node: Node) -> Peer:
    """A confirming channel; `kept` is durable, `open` is not, `full` has no room for more."""
    peer = node.connect(1, 2)
    peer.declare("kept")
    peer.declare("open", durable=False)
    reject = {"x-max-length": 1, "x-overflow": "reject-publish"}
    peer.declare("full", durable=True, arguments=reject)
    peer.declare("both", durable=True)
    peer.call(1, "exchange.declare", exchange="fan", type="fanout")
    for queue in ("full", "both"):
        peer.call(1, "queue.bind", queue=queue, exchange="fan")
    peer.send(publish(2, "", "full", b"fills it"))
    peer.call(1, "confirm.select")
    node.sync()
    return peer


@pytest.fixture
def peer(node: Node) -> Peer:
    """A confirming channel."""
    return confirming(node)


#: Where a publish goes (exchange, routing key), what its confirm is, and whether it needs a sync.
PLACES = {
    "kept": ("", "kept", "basic.ack", True),
    "open": ("", "open", "basic.ack", False),
    "full": ("", "full", "basic.nack", False),
    "both": ("fan", "", "basic.nack", True),
    "nowhere": ("", "nowhere", "basic.ack", False),
    "returned": ("", "nowhere", "basic.ack", False),
}


def put(place: str) -> bytes:
    """A persistent publish to one of the places."""
    exchange, key = PLACES[place][:2]
    return publish(1, exchange, key, b"x", mandatory=place == "returned", delivery_mode=2)


class Book:
    """What a publisher knows: which publishes are open, and what became of the others."""

    def __init__(self) -> None:
        self.open: list[int] = []
        self.published: list[str] = []
        self.outcomes: dict[int, str] = {}

    def publish(self, place: str) -> None:
        self.published.append(place)
        self.open.append(len(self.published))

    def take(self, got: list[Method]) -> None:
        """Read confirms as a client does: `multiple` is all that are open up to the tag."""
        returned = [number for number, place in enumerate(self.published, 1) if place == "returned"]
        for one in got:
            if one.name == "basic.return":
                continue
            assert one.name in ("basic.ack", "basic.nack")
            tag = one.delivery_tag
            tags = [open_ for open_ in self.open if open_ == tag or (one.multiple and open_ < tag)]
            assert tag in tags, "a confirm of what is not open"
            assert one.multiple == (len(tags) > 1)
            # None stands for publishes on both sides of a return.
            assert not any(tags[0] < number <= tag for number in returned)
            for number in tags:
                self.open.remove(number)
                self.outcomes[number] = one.name


@settings(max_examples=80)
@given(st.lists(st.sampled_from([*PLACES, "sync", "batch"]), max_size=40))
def test_each_publish_has_one_confirm_of_its_kind(steps: list[str]) -> None:
    node = Node()
    peer = confirming(node)
    book = Book()
    waiting: list[bytes] = []
    unsynced: set[int] = set()

    def flush() -> None:
        peer.send(*waiting)
        waiting.clear()
        book.take(peer.take())
        assert not unsynced & set(book.outcomes), "confirmed before its sync"

    for step in steps:
        if step == "sync":
            flush()
            node.sync()
            unsynced.clear()
            book.take(peer.take())
            assert book.open == []
        elif step == "batch":
            flush()
        else:
            waiting.append(put(step))
            book.publish(step)
            if PLACES[step][3]:
                unsynced.add(len(book.published))
    flush()
    node.sync()
    book.take(peer.take())
    assert book.open == []
    wanted = {number: PLACES[place][2] for number, place in enumerate(book.published, 1)}
    assert book.outcomes == wanted


def test_a_refusal_is_a_nack_and_other_queues_keep_the_message(node: Node, peer: Peer) -> None:
    """Behaviour 26 (reject-publish).

    With the record that the others need, the nack waits for its sync.
    """
    peer.send(put("both"))
    assert peer.take() == []
    node.sync()
    got = peer.expect(1, "basic.nack")
    assert (got.delivery_tag, got.multiple, got.requeue) == (1, False, True)
    assert node.classic("both").ready_count() == 1
    assert node.classic("full").ready_count() == 1


def test_runs_of_a_kind_share_a_confirm(node: Node, peer: Peer) -> None:
    peer.send(*[put(place) for place in ("open", "nowhere", "full", "full", "full", "open")])
    got = [(one.name, one.delivery_tag, one.multiple) for one in peer.take()]
    assert got == [("basic.ack", 2, True), ("basic.nack", 5, True), ("basic.ack", 6, False)]


def answers(peer: Peer) -> list[tuple[str, int, bool]]:
    """What the client reads: confirms with their tag, and returns."""
    return [
        (one.name, one.fields.get("delivery_tag", 0), one.fields.get("multiple", False))
        for one in peer.take()
    ]


def test_what_is_settled_before_a_return_is_confirmed_before_it(peer: Peer) -> None:
    """php-amqp's `waitForConfirm` reads one answer after the other, and counts on each."""
    peer.send(*[put(place) for place in ("nowhere", "open", "returned", "open", "returned")])
    assert answers(peer) == [
        ("basic.ack", 2, True), ("basic.return", 0, False),
        ("basic.ack", 4, True), ("basic.return", 0, False),
        ("basic.ack", 5, False),
    ]  # fmt: skip


def test_what_waits_for_its_sync_is_not_confirmed_with_what_was_returned(
    node: Node, peer: Peer
) -> None:
    peer.send(*[put(place) for place in ("kept", "kept", "returned", "both", "returned", "kept")])
    assert answers(peer) == [("basic.return", 0, False)] * 2
    node.sync()
    assert answers(peer) == [
        ("basic.ack", 2, True), ("basic.ack", 3, False), ("basic.nack", 4, False),
        ("basic.ack", 6, True),
    ]  # fmt: skip


@pytest.mark.parametrize("more", [0, 1], ids=["as many", "one more"])
def test_so_many_returns_keep_confirms_apart_until_a_sync(
    node: Node, peer: Peer, more: int
) -> None:
    peer.send(put("kept"), *[put("returned")] * (CONFIRMS_APART_MAX + more))
    assert answers(peer) == [("basic.return", 0, False)] * (CONFIRMS_APART_MAX + more)
    node.sync()
    apart = [("basic.ack", tag, False) for tag in range(1, CONFIRMS_APART_MAX + 1)]
    last = ("basic.ack", CONFIRMS_APART_MAX + 1 + more, more > 0)
    assert answers(peer) == [*apart, last]


def test_a_nack_waits_for_what_comes_before_it(node: Node, peer: Peer) -> None:
    """Confirms are in order, so a nack never stands after an ack of several that skipped it."""
    peer.send(put("kept"), put("full"), put("open"))
    assert peer.take() == []
    node.begin_sync()
    peer.send(put("full"), put("kept"), put("full"))
    assert peer.take() == []
    node.write()
    node.end_sync()
    got = [(one.name, one.delivery_tag, one.multiple) for one in peer.take()]
    assert got == [("basic.ack", 1, False), ("basic.nack", 2, False), ("basic.ack", 3, False),
                   ("basic.nack", 4, False)]  # fmt: skip
    node.sync()
    assert [(one.name, one.delivery_tag) for one in peer.take()] == [
        ("basic.ack", 5), ("basic.nack", 6),
    ]  # fmt: skip


def test_a_mandatory_message_that_is_refused_is_not_returned(peer: Peer) -> None:
    """It has a queue, if a full one."""
    peer.send(publish(1, "", "full", b"x", mandatory=True))
    assert peer.names() == ["basic.nack"]


def test_what_is_settled_is_told_before_a_close(node: Node, peer: Peer) -> None:
    peer.send(put("open"), put("full"), method(1, "channel.close", code=200))
    assert peer.names() == ["basic.ack", "basic.nack", "channel.close-ok"]
    peer.call(1, "channel.open")
    peer.call(1, "confirm.select")
    peer.send(put("full"), put("kept"), publish(1, "missing", "", b"x"))
    # The one that waits for its sync stays unsettled: the close is its answer.
    assert peer.names() == ["basic.nack", "channel.close"]
    node.sync()
    assert peer.take() == []


def test_a_refused_publish_ends_its_transaction_with_406(node: Node, peer: Peer) -> None:
    """RabbitMQ's answer: all the rest is done, and the close says that not everything was."""
    peer.send(publish(2, "", "open", b"taken"))
    peer.take()
    peer.call(2, "tx.select")
    peer.send(method(2, "basic.get", queue="open"))
    tag = peer.expect(2, "basic.get-ok").delivery_tag
    peer.send(
        publish(2, "fan", "", b"a", delivery_mode=2),
        publish(2, "", "none", b"b", mandatory=True),
        publish(2, "", "kept", b"c", delivery_mode=2),
        method(2, "basic.ack", delivery_tag=tag),
        method(2, "tx.commit"),
    )
    assert peer.expect(2, "basic.return").body == b"b"
    closed = peer.expect(2, "channel.close")
    assert (closed.code, closed.text) == (406, "PRECONDITION_FAILED - partial tx completion")
    assert (closed.class_id, closed.method_id) == (90, 20)
    ready = {name: node.classic(name).ready_count() for name in ("both", "kept", "full", "open")}
    assert ready == {"both": 1, "kept": 1, "full": 1, "open": 0}
