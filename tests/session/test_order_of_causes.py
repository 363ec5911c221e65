"""What a channel is sent comes in the order of its causes.

What a request has caused follows its -ok, which may wait for a sync; what has other causes waits
for nothing.  What tells of a change that is not durable is told to nobody, on whatever connection.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.names import Name
from leveret.session.settings import SessionSettings
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish


@pytest.fixture(params=[False, True], ids=["whole", "bytewise"])
def bytewise(request: pytest.FixtureRequest) -> bool:
    """Whether the input is fed byte by byte."""
    return bool(request.param)


@pytest.fixture
def node() -> Node:
    """A broker that limits how long a delivery may stay unacked."""
    return Node(settings=SessionSettings("test", consumer_timeout_ms=2000))


@pytest.fixture
def peer(node: Node) -> Iterator[Peer]:
    """A client with the channels 1 and 2, and the durable queue `q` that it consumes."""
    peer = node.connect(1, 2)
    peer.declare("q")
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    yield peer
    node.sync()


def feed(peer: Peer, bytewise: bool, *frames: bytes) -> None:
    """Send frames, in one piece or byte by byte."""
    data = b"".join(frames)
    if bytewise:
        for at in range(len(data)):
            peer.send(data[at : at + 1])
    else:
        peer.send(data)


def came(peer: Peer) -> list[tuple[int, str]]:
    """The channels and methods that came since the last look."""
    return [(got.channel, got.name) for got in peer.take()]


DELETE = method(1, "queue.delete", queue="q")
OK_AND_CANCEL = [(1, "queue.delete-ok"), (1, "basic.cancel")]


def test_cancel_follows_the_ok_of_the_delete_that_caused_it(
    node: Node, peer: Peer, bytewise: bool
) -> None:
    feed(peer, bytewise, DELETE, method(1, "queue.declare", queue="next"))
    assert came(peer) == []
    node.sync()
    assert came(peer) == [*OK_AND_CANCEL, (1, "queue.declare-ok")]


def test_cancel_of_what_is_not_durable_follows_its_ok_at_once(node: Node, bytewise: bool) -> None:
    peer = node.connect()
    peer.declare("q", durable=False)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    feed(peer, bytewise, DELETE, method(1, "queue.declare", queue="next"))
    assert came(peer) == [*OK_AND_CANCEL, (1, "queue.declare-ok")]


def test_cancels_of_other_channels_and_connections_wait_until_it_is_durable(
    node: Node, peer: Peer, bytewise: bool
) -> None:
    other = node.connect()
    other.call(1, "basic.consume", queue="q", consumer_tag="o")
    peer.call(2, "basic.consume", queue="q", consumer_tag="two")
    feed(peer, bytewise, DELETE)
    assert came(peer) == came(other) == []
    node.sync()
    assert came(peer) == [*OK_AND_CANCEL, (2, "basic.cancel")]
    assert came(other) == [(1, "basic.cancel")]


def test_cancels_wait_for_the_sync_also_where_nobody_waits_for_an_ok(
    node: Node, peer: Peer, bytewise: bool
) -> None:
    """By no_wait, and by who has no channel, as over HTTP."""
    peer.declare("other")
    peer.call(1, "basic.consume", queue="other", consumer_tag="o")
    feed(peer, bytewise, method(1, "queue.delete", queue="q", no_wait=True))
    node.vhost.queues.delete(None, Name("other"), False, False)
    node.run()
    assert came(peer) == []
    node.sync()
    assert came(peer) == [(1, "basic.cancel")] * 2


def test_an_ok_that_waits_for_less_does_not_bring_the_cancel(node: Node, peer: Peer) -> None:
    """The -ok of a definition that another made waits for its group, the cancel for the next."""
    other = node.connect()
    other.send(method(1, "queue.declare", queue="new", durable=True))
    node.begin_sync()
    peer.send(
        method(1, "queue.delete", queue="q", no_wait=True),
        method(1, "queue.declare", queue="new", durable=True),
    )
    node.write()
    node.end_sync()
    assert came(peer) == [(1, "queue.declare-ok")]
    node.sync()
    assert came(peer) == [(1, "basic.cancel")]


def test_deliveries_and_confirms_of_earlier_causes_do_not_wait(
    node: Node, peer: Peer, bytewise: bool
) -> None:
    other = node.connect()
    peer.call(2, "confirm.select")
    peer.send(publish(2, "", "q", b"durable", delivery_mode=2))
    assert came(peer) == [(1, "basic.deliver")]
    node.begin_sync()
    feed(peer, bytewise, publish(2, "", "q", b"one"))
    feed(peer, bytewise, DELETE)
    assert came(peer) == [(1, "basic.deliver")]
    node.write()
    node.end_sync()
    # The confirms of what came before the delete; its own -ok waits for the next sync.
    assert came(peer) == [(2, "basic.ack")]
    node.sync()
    assert came(peer) == OK_AND_CANCEL
    peer.declare("r")
    peer.call(1, "basic.consume", queue="r", consumer_tag="r")
    feed(peer, bytewise, method(2, "queue.declare", queue="later", durable=True))
    other.send(publish(1, "", "r", b"two"))
    assert came(peer) == [(1, "basic.deliver")]
    node.sync()
    assert came(peer) == [(2, "queue.declare-ok")]


def test_others_are_told_though_who_asked_is_gone(node: Node, peer: Peer) -> None:
    other = node.connect()
    other.call(1, "basic.consume", queue="q", consumer_tag="o")
    peer.send(DELETE)
    peer.lose()
    assert came(other) == []
    node.sync()
    assert came(other) == [(1, "basic.cancel")]


def test_what_the_client_cancelled_meanwhile_is_not_cancelled_again(node: Node) -> None:
    """Nor is a consumer that has its tag by then."""
    owner, peer = node.connect(), node.connect()
    owner.declare("q")
    peer.call(1, "queue.declare", queue="r")
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    owner.send(DELETE)
    peer.send(method(1, "basic.cancel", consumer_tag="c"))
    peer.send(method(1, "basic.consume", queue="r", consumer_tag="c"))
    node.sync()
    assert came(peer) == [(1, "basic.cancel-ok"), (1, "basic.consume-ok")]
    owner.send(publish(1, "", "r", b"one"))
    assert came(peer) == [(1, "basic.deliver")]


def test_the_broker_ends_no_consumer_before_the_ok_that_it_waits_for(
    node: Node, peer: Peer
) -> None:
    """An ack that is late ends the consumer when its request was answered."""
    peer.send(publish(1, "", "q", b"kept"))
    assert came(peer) == [(1, "basic.deliver")]
    peer.send(method(1, "queue.declare", queue="r", durable=True))
    for _ in range(4):
        node.tick(1000)
    assert came(peer) == []
    node.sync()
    for _ in range(4):
        node.tick(1000)
    assert came(peer) == [(1, "queue.declare-ok"), (1, "basic.cancel")]


def test_the_history_that_a_bind_brings_follows_its_ok(
    node: Node, peer: Peer, bytewise: bool
) -> None:
    """Also what it brings through another exchange; the queue's turn comes when that is durable."""
    history = {"exchange": "h", "type": "x-recent-history", "durable": True}
    peer.call(1, "exchange.declare", **history)
    peer.call(1, "exchange.declare", exchange="f", type="fanout", durable=True)
    peer.call(1, "queue.bind", queue="q", exchange="f")
    peer.send(publish(2, "h", "", b"old", delivery_mode=2))
    feed(peer, bytewise, method(1, "queue.bind", queue="q", exchange="h", routing_key="k"))
    assert came(peer) == []
    node.sync()
    assert came(peer) == [(1, "queue.bind-ok"), (1, "basic.deliver")]
    feed(peer, bytewise, method(1, "exchange.bind", destination="f", source="h"))
    assert came(peer) == []
    node.sync()
    assert came(peer) == [(1, "exchange.bind-ok"), (1, "basic.deliver")]


def test_a_super_stream_s_reader_is_cancelled_after_the_ok(
    node: Node, peer: Peer, bytewise: bool
) -> None:
    peer.declare("s", arguments={"x-queue-type": "stream", "x-super-stream-partitions": 3})
    peer.call(1, "basic.qos", prefetch_count=10)
    peer.call(1, "basic.consume", queue="s", consumer_tag="s")
    feed(peer, bytewise, method(1, "queue.delete", queue="s"))
    assert came(peer) == []
    node.sync()
    assert came(peer) == OK_AND_CANCEL


def test_consume_ok_comes_before_what_waits_in_every_kind_of_queue(
    node: Node, bytewise: bool
) -> None:
    peer = node.connect()
    stream: dict[str, object] = {"x-queue-type": "stream"}
    kinds: list[tuple[str, dict[str, object], dict[str, object]]] = [
        ("classic", {}, {}),
        ("priorities", {"x-max-priority": 3}, {}),
        ("single", {"x-single-active-consumer": True}, {}),
        ("browsed", {}, {"x-browse": True}),
        ("stream", stream, {"x-stream-offset": "first"}),
        ("named", stream, {"x-stream-offset": "first", "x-stream-consumer": "n"}),
    ]
    peer.call(1, "basic.qos", prefetch_count=1)
    for name, arguments, reading in kinds:
        peer.declare(name, arguments=arguments)
        peer.send(publish(1, "", name, b"one", delivery_mode=2))
        node.sync()
        consume = method(1, "basic.consume", queue=name, consumer_tag=name, arguments=reading)
        feed(peer, bytewise, consume)
        assert came(peer)[:2] == [(1, "basic.consume-ok"), (1, "basic.deliver")], name


def test_counts_are_those_after_the_deliveries_that_an_ack_allows(
    peer: Peer, bytewise: bool
) -> None:
    """RabbitMQ's queue has handed out before it answers; so does one that gets both at once."""
    peer.call(2, "queue.declare", queue="counted")
    peer.call(2, "basic.qos", prefetch_count=2)
    peer.call(2, "basic.consume", queue="counted", consumer_tag="two")
    peer.send(b"".join(publish(1, "", "counted", b"%d" % n) for n in range(5)))
    peer.take()
    feed(
        peer,
        bytewise,
        method(2, "basic.ack", delivery_tag=2, multiple=True),
        method(2, "queue.declare", queue="counted", passive=True),
    )
    got = {item.name: item for item in peer.take()}
    assert got["queue.declare-ok"].message_count == 1
    feed(
        peer,
        bytewise,
        method(2, "basic.ack", delivery_tag=3),
        method(1, "basic.get", queue="counted"),
    )
    assert [name for _, name in came(peer)] == ["basic.deliver", "basic.get-empty"]


def test_a_purge_takes_nothing_that_a_consumer_is_owed(peer: Peer, bytewise: bool) -> None:
    """What was published before a purge, and a consumer waited for, is delivered."""
    peer.call(2, "queue.declare", queue="purged")
    peer.call(2, "basic.consume", queue="purged", consumer_tag="all")
    feed(peer, bytewise, publish(1, "", "purged", b"1"), method(1, "queue.purge", queue="purged"))
    assert sorted(came(peer)) == [(1, "queue.purge-ok"), (2, "basic.deliver")]
    feed(
        peer,
        bytewise,
        publish(1, "", "purged", b"2"),
        method(1, "queue.delete", queue="purged", if_empty=True),
    )
    assert {name for _, name in came(peer)} == {
        "basic.deliver",
        "basic.cancel",
        "queue.delete-ok",
    }
