"""Long operations: what a client asks for with a few bytes takes a bounded cost, or many turns."""

from __future__ import annotations

import pytest

from leveret.broker.scheduler.costs import SLICE
from leveret.broker.vhost.vhost import HISTORY_COPIES_MAX
from leveret.limits import (
    COPY_KEYS_MAX,
    LETTERS_WAITING_MAX,
    SLICE_MESSAGES,
    TX_COPIES_MAX,
    TX_MESSAGES_MAX,
)
from leveret.store.disks.recording import RecordingDisk
from support.costs.work_account import Account, stop
from support.node.core import Node, Peer
from support.node.variants import few_of
from support.wire.raw_codec import method, publish


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def peer(node: Node) -> Peer:
    return node.connect()


def lines_of(peer: Peer, data: bytes) -> int:
    """How many lines of the broker run until all that these bytes ask for is done."""
    with Account(1 << 40) as account:
        peer.send(data)
    stop()
    return account.lines


def test_each_exclusive_queue_costs_the_same(peer: Peer) -> None:
    """Its connection's list of them is not read for each new one."""

    def declare(first: int, count: int) -> bytes:
        return b"".join(
            method(1, "queue.declare", queue=f"x{number}", exclusive=True, no_wait=True)
            for number in range(first, first + count)
        )

    peer.send(declare(0, 1))
    few = lines_of(peer, declare(1, 100))
    peer.send(declare(101, 2000))
    assert lines_of(peer, declare(2101, 100)) <= few + 100
    assert len(peer.connection.exclusive_queues) == 2201


def test_the_copies_of_a_transaction_have_a_limit(node: Node, peer: Peer) -> None:
    """So a commit, which is one record and one call, takes some milliseconds."""
    queues = 256
    peer.call(1, "exchange.declare", exchange="all", type="fanout")
    for number in range(queues):
        peer.declare(f"q{number}")
        peer.call(1, "queue.bind", queue=f"q{number}", exchange="all")
    peer.call(1, "tx.select")
    peer.send(publish(1, "all", "", b"m") * (TX_COPIES_MAX // queues))
    assert peer.take() == []
    peer.call(1, "tx.commit")
    # The next one begins anew.
    peer.send(publish(1, "all", "", b"m") * (TX_COPIES_MAX // queues))
    assert peer.take() == []
    peer.send(publish(1, "all", "", b"one more"))
    assert peer.expect(1, "channel.close").code == 406
    assert node.classic("q0").ready_count() == TX_COPIES_MAX // queues


def test_what_a_transaction_settles_has_a_limit(node: Node, peer: Peer) -> None:
    peer.declare("q", durable=False)
    peer.call(1, "tx.select")
    other = node.connect()
    other.send(publish(1, "", "q", b"m") * (TX_MESSAGES_MAX + 1))
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.take()
    peer.send(method(1, "basic.ack", delivery_tag=TX_MESSAGES_MAX, multiple=True))
    assert peer.take() == []
    # What it publishes is counted apart.
    peer.send(publish(1, "", "q", b"x"))
    assert peer.take() == []
    peer.send(method(1, "basic.ack", delivery_tag=TX_MESSAGES_MAX + 1))
    closed = peer.expect(1, "channel.close")
    assert (closed.code, "maximum of 10000 uncommitted acks" in closed.text) == (406, True)
    # Nothing was committed, and nothing is lost.
    assert node.classic("q").ready_count() == TX_MESSAGES_MAX + 1


def test_the_letters_of_a_transaction_have_a_limit(node: Node, peer: Peer) -> None:
    """Those beyond it follow its record in slices, as letters of other messages do."""
    peer.call(1, "exchange.declare", exchange="dead", type="fanout")
    for number in range(100):
        peer.declare(f"dead{number}", durable=False)
        peer.call(1, "queue.bind", queue=f"dead{number}", exchange="dead")
    peer.declare("q", durable=False, arguments={"x-dead-letter-exchange": "dead"})
    peer.send(publish(1, "", "q", b"m") * 200)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    peer.take()
    peer.call(1, "tx.select")
    peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True))
    peer.receive(method(1, "tx.commit"))
    # 200 letters of 100 copies each are five times what one call makes.
    assert 0 < node.core.scheduler.letters.count() < 200
    node.run()
    assert node.core.scheduler.letters.count() == 0
    assert node.classic("dead99").ready_count() == 200


def keep_history(peer: Peer, length: int) -> None:
    """Declare the exchange `history`, which keeps so many messages."""
    arguments = {"x-recent-history-length": length}
    peer.call(
        1, "exchange.declare", exchange="history", type="x-recent-history", arguments=arguments
    )


def test_a_replayed_history_has_a_limit_of_copies(node: Node, peer: Peer) -> None:
    """The newest messages are replayed where the destination has many queues."""
    queues = 64
    length = HISTORY_COPIES_MAX // queues * 2
    keep_history(peer, length)
    peer.send(*[publish(1, "history", "", b"%d" % number) for number in range(length)])
    peer.call(1, "exchange.declare", exchange="all", type="fanout")
    for number in range(queues):
        peer.declare(f"q{number}", durable=False)
        peer.call(1, "queue.bind", queue=f"q{number}", exchange="all")
    peer.call(1, "exchange.bind", source="history", destination="all")
    replayed = HISTORY_COPIES_MAX // (queues + 1)
    assert node.classic("q0").ready_count() == replayed
    assert peer.call_get("q63").body == b"%d" % (length - replayed)
    # A single queue gets all of it.
    peer.call(1, "queue.bind", queue="q0", exchange="history")
    assert node.classic("q0").ready_count() == replayed + length


@pytest.mark.parametrize("paged", [False, True])
def test_a_browser_passes_over_many_messages_at_once(paged: bool) -> None:
    node = Node(window_bytes=200_000 if paged else -1)
    peer = node.connect()
    peer.declare("q", durable=False)
    count = 3 * SLICE
    peer.send(*[publish(1, "", "q", b"%d" % number) for number in range(count)])

    def far(position: int) -> bytes:
        return method(1, "basic.consume", queue="q", arguments={"x-browse": {"position": position}})

    # Another one reads its page from the disk.
    assert lines_of(peer, far(count - 10)) < (60_000 if paged else 4000)
    assert peer.take()[1].body == b"%d" % (count - 10)
    peer.send(far(-7))
    assert peer.take()[-8].body == b"%d" % (count - 7)


def test_delayed_messages_with_many_keys_are_released_in_turns(node: Node, peer: Peer) -> None:
    """What they are routed by, and their headers, are counted."""
    arguments = {"x-delayed-type": "topic"}
    peer.call(
        1, "exchange.declare", exchange="later", type="x-delayed-message", arguments=arguments
    )
    peer.declare("q", durable=False)
    for number in range(20):
        peer.call(1, "queue.bind", queue="q", exchange="later", routing_key=f"#.{number}.#")
    headers = {"x-delay": 1000, "CC": ["a.b.c.d.e.f"] * COPY_KEYS_MAX}
    count = 30
    peer.send(*[publish(1, "later", "1", b"", headers=headers) for _ in range(count)])
    node.run()
    node.clock.advance(2000)
    node.now()
    rounds = 0
    while node.classic("q").ready_count() < count:
        node.settle()
        rounds += 1
    assert rounds >= count // 2
    assert node.classic("q").ready_count() == count


#: Deliveries that are more than one slice.
MANY = 4 * SLICE


def consumed(node: Node, count: int = MANY, *, durable: bool = False) -> Peer:
    """A peer that holds messages of the queue `q` unacked on channel 1 and consumes no more."""
    peer = node.connect(1, 2)
    peer.declare("q", durable=durable)
    mode = 2 if durable else 1
    peer.send(*[publish(2, "", "q", b"%d" % number, delivery_mode=mode) for number in range(count)])
    node.sync()
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    assert len(peer.bodies()) == count
    peer.call(1, "basic.cancel", consumer_tag="c")
    return peer


REQUESTS = {
    "ack": method(1, "basic.ack", delivery_tag=MANY, multiple=True),
    "nack": method(1, "basic.nack", delivery_tag=MANY, multiple=True, requeue=True),
    "drop": method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=False),
    "recover": method(1, "basic.recover", requeue=True),
    "channel.close": method(1, "channel.close", code=200),
    "connection.close": method(0, "connection.close", code=200),
}


@pytest.mark.parametrize("way", ["nack", "channel.close", "lost"])
def test_what_comes_back_in_turns_comes_in_its_order(node: Node, way: str) -> None:
    """Another consumer gets nothing of it before all of it is back."""
    peer = consumed(node)
    other = node.connect()
    other.send(publish(1, "", "q", b"new"))
    if way == "lost":
        peer.vanish()
    else:
        peer.receive(REQUESTS[way])
    other.receive(method(1, "basic.consume", queue="q", no_ack=True, no_wait=True))
    node.run()
    bodies = other.bodies()
    assert [int(body) for body in bodies if body != b"new"] == list(range(MANY))
    assert bodies[-1] == b"new"


def flooded(node: Node, peer: Peer) -> None:
    """Have more dead letters wait than others may add to, by messages that `peer` rejects."""
    peer.declare("flood", durable=False, arguments={"x-dead-letter-exchange": "amq.fanout"})
    peer.send(publish(1, "", "flood", b"m") * (3 * LETTERS_WAITING_MAX))
    peer.call(1, "basic.consume", queue="flood", consumer_tag="c")
    node.run()
    peer.receive(method(1, "basic.nack", delivery_tag=0, multiple=True))
    while node.core.scheduler.letters.count() <= LETTERS_WAITING_MAX:
        node.settle()


@pytest.mark.parametrize("way", ["basic.recover", "basic.nack", "channel.close"])
def test_few_deliveries_do_not_wait_for_the_dead_letters_of_others(node: Node, way: str) -> None:
    """They make few themselves, or none."""
    peer = consumed(node, 1)
    flooded(node, node.connect())
    requests = {
        "basic.recover": method(1, "basic.recover", requeue=True),
        "basic.nack": method(1, "basic.nack", delivery_tag=0, multiple=True),
        "channel.close": method(1, "channel.close", code=200),
    }
    peer.receive(requests[way], method(2, "basic.qos"))
    assert node.core.scheduler.letters.count() > LETTERS_WAITING_MAX
    peer.flush()
    assert peer.names()[-1] == "basic.qos-ok"


@pytest.mark.parametrize("why", ["ttl", "length"])
def test_few_drops_do_not_wait_for_the_dead_letters_of_others(node: Node, why: str) -> None:
    peer = node.connect()
    arguments = {"x-dead-letter-exchange": "amq.fanout", "x-max-length-bytes": 50}
    peer.declare("q", durable=False, arguments=arguments)
    peer.send(publish(1, "", "q", b"m", expiration="1000") * 50)
    flooded(node, node.connect())
    if why == "ttl":
        node.clock.advance(1001)
        peer.receive(method(1, "basic.get", queue="q"))
    else:
        peer.receive(publish(1, "", "q", b"m" * 50))
        assert node.classic("q").ready_count() == 1
        peer.receive(method(1, "basic.get", queue="q"))
    assert node.core.scheduler.letters.count() > LETTERS_WAITING_MAX
    peer.flush()
    assert peer.names() == ["basic.get-empty" if why == "ttl" else "basic.get-ok"]


def test_what_was_begun_ends_when_the_connection_is_lost(node: Node) -> None:
    """A client that acked and went has acked; what it did not ack comes back after that."""
    peer = consumed(node, MANY + 10)
    peer.receive(REQUESTS["ack"])
    node.settle()
    assert not node.rests()
    peer.vanish()
    node.run()
    assert node.classic("q").ready_count() == 10
    other = node.connect()
    assert other.call_get("q").body == b"%d" % MANY


def test_a_stop_ends_what_was_begun() -> None:
    """A clean stop knows which messages were delivered before."""
    node = Node()
    peer = consumed(node, durable=True)
    peer.receive(REQUESTS["nack"])
    assert not node.rests()
    node.broker.journal_stop(node.clock.wall_ms())
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert again.report.clean_stop
    assert again.classic("q").ready_count() == MANY
    assert again.connect().call_get("q").redelivered


def test_exclusive_queues_are_deleted_in_turns(node: Node) -> None:
    """A name is taken until its queue is gone, and free from then on."""
    peer = node.connect()
    declares = [
        method(1, "queue.declare", queue=f"x{number}", exclusive=True, no_wait=True)
        for number in range(2 * SLICE)
    ]
    peer.send(*declares)
    other = node.connect()
    peer.vanish()
    assert not node.rests()
    assert 0 < len(node.vhost.queues.by_name) < 2 * SLICE
    left = next(iter(node.vhost.queues.by_name))
    other.send(method(1, "queue.declare", queue=left, passive=True))
    assert other.expect(1, "channel.close").code == 405
    assert len(node.vhost.queues.by_name) == 0
    assert peer.connection not in node.broker.links


def test_a_global_prefetch_costs_each_ack_its_consumers_once(node: Node) -> None:
    peer = node.connect(1, 2)
    peer.declare("q", durable=False)
    peer.call(1, "basic.qos", prefetch_count=1000, **{"global": True})
    peer.send(
        *[
            method(1, "basic.consume", queue="q", consumer_tag=f"c{number}", no_wait=True)
            for number in range(1000)
        ]
    )
    peer.send(publish(2, "", "q", b"m") * 1000)
    assert len(peer.bodies()) == 1000
    lines = lines_of(peer, method(1, "basic.ack", delivery_tag=1000, multiple=True))
    assert lines < 100_000


def test_consumers_of_many_priorities_cost_little_each(node: Node) -> None:
    """None of them looks at the others when it comes or goes."""
    peer = node.connect()
    peer.declare("q", durable=False)

    def consume(first: int, count: int) -> bytes:
        return b"".join(
            method(
                1, "basic.consume", queue="q", consumer_tag=f"c{number}", no_wait=True,
                arguments={"x-priority": number},
            )
            for number in range(first, first + count)
        )  # fmt: skip

    def cancel(first: int, count: int) -> bytes:
        return b"".join(
            method(1, "basic.cancel", consumer_tag=f"c{number}", no_wait=True)
            for number in reversed(range(first, first + count))
        )

    peer.send(consume(0, 1))
    few = lines_of(peer, consume(1, 50)) + lines_of(peer, cancel(1, 50))
    peer.send(consume(1, 1000))
    many = lines_of(peer, consume(1001, 50)) + lines_of(peer, cancel(1001, 50))
    assert many <= 2 * few


@pytest.mark.parametrize("why", ["ttl", "length"])
def test_a_get_behind_many_expired_messages_takes_many_turns(node: Node, why: str) -> None:
    """It gets the first that lives, and what follows waits for it."""
    peer = node.connect(1, 2)
    peer.declare("q", durable=False)
    old = publish(2, "", "q", b"old")
    if why == "ttl":
        old = publish(2, "", "q", b"old", expiration="10")
    peer.send(old * (8 * SLICE_MESSAGES), publish(2, "", "q", b"new"))
    if why == "ttl":
        node.clock.advance(1000)
    else:
        node.classic("q").configure({"x-max-length": 1})
    peer.connection.receive(
        method(1, "basic.get", queue="q") + method(2, "queue.declare", queue="q", passive=True),
        node.now(),
    )
    assert not node.rests()
    # What follows may have to wait for a turn, where the last one took long.
    node.run()
    got, declared = peer.take()
    assert (got.name, got.body) == ("basic.get-ok", b"new")
    assert declared.name == "queue.declare-ok"


def test_a_get_of_a_queue_that_is_deleted_meanwhile(node: Node) -> None:
    peer = node.connect()
    peer.declare("q", durable=False)
    peer.send(publish(1, "", "q", b"old", expiration="10") * MANY)
    node.clock.advance(1000)
    peer.receive(method(1, "basic.get", queue="q"))
    assert not node.rests()
    node.vhost.queues.drop(node.classic("q"))
    node.run()
    assert peer.names() == ["basic.get-empty"]


def bound(node: Node, kind: str, count: int = MANY // 2, *, auto_delete: bool = False) -> Peer:
    """A peer with the queue `q` bound to the exchange `e` by many keys."""
    peer = node.connect(1, 2)
    peer.declare("q")
    peer.call(1, "exchange.declare", exchange="e", type=kind, durable=True, auto_delete=auto_delete)
    binds = [
        method(1, "queue.bind", queue="q", exchange="e", routing_key=f"k.{number}", no_wait=True)
        for number in range(count)
    ]
    peer.send(*binds)
    node.sync()
    return peer


@pytest.mark.parametrize("kind", few_of(["topic", "fanout", "direct", "headers"], 2))
@pytest.mark.parametrize("what", ["queue", "exchange"])
def test_bindings_are_removed_in_turns(node: Node, what: str, kind: str) -> None:
    """The name is free at once, nothing is routed by them, and the reply comes at the end."""
    peer = bound(node, kind, auto_delete=what == "queue")
    other = node.connect()
    peer.receive(method(1, f"{what}.delete", **{what: "q" if what == "queue" else "e"}))
    assert not node.rests()
    if what == "queue":
        other.connection.receive(
            method(1, "queue.declare", queue="q")
            + method(1, "queue.bind", queue="q", exchange="e", routing_key="k.7")
            + publish(1, "e", "k.8", b"gone", mandatory=True)
            + publish(1, "e", "k.7", b"new", mandatory=True),
            node.now(),
        )
        assert not node.rests()
    node.sync()
    assert peer.names() == [f"{what}.delete-ok"]
    if what == "queue":
        returned = [] if kind in ("fanout", "headers") else ["basic.return"]
        assert other.names() == ["queue.declare-ok", "queue.bind-ok", *returned]
        assert len(node.vhost.exchanges.by_name["e"].bindings) == 1
        assert other.call_get("q").body == (b"new" if returned else b"gone")
        peer.call(1, "queue.delete", queue="q")
        # It went with its last binding.
    assert "e" not in node.vhost.exchanges.by_name
    again = Node(RecordingDisk(node.image()))
    assert "e" not in again.vhost.exchanges.by_name
    assert ("q" in again.vhost.queues.by_name) == (what == "exchange")
