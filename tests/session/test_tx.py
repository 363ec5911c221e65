"""Transactions: publishes and acks that count together, or not at all.

Sources: AMQP 0-9-1 section 1.9 and behaviours 28 (no tx with confirms) and 29 (errors in a
transaction).
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.limits import BODY_APART_BYTES, TX_BYTES_MAX, TX_MESSAGES_MAX, TX_SMALL_BYTES_MAX
from leveret.names import Name
from support.brokers.broker_restarts import killed
from support.node.core import Node, Peer, all_waiting
from support.wire.raw_codec import method, publish


@pytest.fixture
def tx(node: Node) -> Peer:
    """A connection whose channel 1 is transactional; the transient queue `q` holds 0 to 4."""
    return transactional(node)


def transactional(node: Node, *, durable: bool = False) -> Peer:
    peer = node.connect(1, 2)
    peer.declare("q", durable=durable)
    peer.send(*[put(number, channel=2) for number in range(5)])
    peer.call(1, "tx.select")
    return peer


def put(number: int, queue: str = "q", channel: int = 1) -> bytes:
    """A publish of a number, persistent."""
    return publish(channel, "", queue, b"%d" % number, delivery_mode=2)


def ready(peer: Peer) -> int:
    """How many messages wait in `q`."""
    return peer.node.vhost.queues.existing(Name("q"), None).ready_count()


def rest(peer: Peer) -> list[tuple[int, bool]]:
    """All that waits in `q`, by another channel, with the redelivered flags."""
    got = []
    for _ in range(ready(peer)):
        peer.send(method(2, "basic.get", queue="q", no_ack=True))
        message = peer.expect(2, "basic.get-ok")
        got.append((int(message.body), message.redelivered))
    return got


def fresh(*numbers: int) -> list[tuple[int, bool]]:
    """Numbers that were not redelivered."""
    return [(number, False) for number in numbers]


# -- publishes -------------------------------------------------------------------------------------


def test_publishes_count_from_the_commit_on(tx: Peer) -> None:
    tx.send(put(5), put(6))
    assert ready(tx) == 5
    tx.call(1, "tx.commit")
    assert rest(tx) == fresh(*range(7))


def test_a_rollback_drops_publishes(tx: Peer) -> None:
    tx.send(put(5))
    tx.call(1, "tx.rollback")
    tx.send(put(6))
    tx.call(1, "tx.commit")
    assert rest(tx) == fresh(0, 1, 2, 3, 4, 6)


@pytest.mark.parametrize("end", ["channel", "connection", "error"])
def test_what_was_not_committed_ends_with_its_channel(tx: Peer, end: str) -> None:
    tx.call_get("q")
    tx.send(put(5), method(1, "basic.ack", delivery_tag=1))
    if end == "channel":
        tx.call(1, "channel.close")
    elif end == "connection":
        tx.lose()
        tx = tx.node.connect(1, 2)
    else:
        tx.send(publish(1, "nowhere", "", b"x"))
        assert tx.expect(1, "channel.close").code == 404
    assert rest(tx) == [(0, True), *fresh(1, 2, 3, 4)]


def test_an_error_is_told_at_the_publish(tx: Peer) -> None:
    """Behaviour 29 (errors in a transaction)."""
    tx.send(publish(1, "nowhere", "", b"x"), method(1, "tx.commit"))
    assert tx.expect(1, "channel.close").code == 404
    assert tx.take() == []


def test_returns_come_with_the_commit_before_its_ok(tx: Peer) -> None:
    """Behaviour 29 (errors in a transaction)."""
    tx.send(publish(1, "", "none", b"a", mandatory=True), put(5))
    assert tx.take() == []
    tx.send(publish(1, "", "none", b"b"), publish(1, "", "none", b"c", mandatory=True))
    tx.send(method(1, "tx.commit"))
    got = tx.take()
    assert [one.name for one in got] == ["basic.return", "basic.return", "tx.commit-ok"]
    assert [one.body for one in got] == [b"a", b"c", b""]
    # They belong to that transaction alone.
    tx.call(1, "tx.commit")


def test_a_rollback_returns_nothing(tx: Peer) -> None:
    tx.send(publish(1, "", "none", b"a", mandatory=True))
    tx.call(1, "tx.rollback")
    tx.call(1, "tx.commit")
    assert tx.take() == []


def test_a_queue_that_went_before_the_commit_takes_nothing(tx: Peer) -> None:
    tx.call(2, "queue.declare", queue="r")
    tx.send(publish(1, "", "r", b"x", mandatory=True), put(5))
    tx.call(2, "queue.delete", queue="r")
    tx.send(method(1, "tx.commit"))
    assert tx.names() == ["basic.return", "tx.commit-ok"]
    assert rest(tx) == fresh(*range(6))


def test_the_order_of_publishes_is_kept(tx: Peer) -> None:
    tx.send(put(5))
    tx.send(put(6, channel=2))
    tx.call(1, "tx.commit")
    assert rest(tx) == fresh(0, 1, 2, 3, 4, 6, 5)


def test_time_to_live_begins_at_the_commit(tx: Peer) -> None:
    tx.call(2, "queue.declare", queue="r", arguments={"x-message-ttl": 1000})
    tx.send(publish(1, "", "r", b"x"))
    tx.node.tick(5000)
    tx.call(1, "tx.commit")
    assert tx.node.vhost.queues.existing(Name("r"), None).ready_count() == 1


# -- acks ------------------------------------------------------------------------------------------


def test_acks_count_from_the_commit_on(tx: Peer) -> None:
    queue = tx.node.vhost.queues.existing(Name("q"), None)
    tx.call_get("q")
    tx.send(method(1, "basic.ack", delivery_tag=1))
    assert (queue.acked, queue.unacked_count) == (0, 1)
    tx.call(1, "tx.commit")
    assert queue.unacked_count == 0
    assert rest(tx) == fresh(1, 2, 3, 4)


def test_a_rollback_discards_acks_and_requeues_nothing(tx: Peer) -> None:
    """Behaviour 29 (errors in a transaction).

    The messages stay unacked on this channel and may be acked again.
    """
    for _ in range(3):
        tx.call_get("q")
    tx.send(method(1, "basic.ack", delivery_tag=2, multiple=True))
    tx.send(method(1, "basic.reject", delivery_tag=3, requeue=True))
    tx.call(1, "tx.rollback")
    assert ready(tx) == 2
    tx.send(method(1, "basic.ack", delivery_tag=2))
    tx.call(1, "tx.commit")
    tx.call(1, "channel.close")
    assert rest(tx) == [(0, True), (2, True), *fresh(3, 4)]


def test_an_ack_twice_in_a_transaction_is_an_error(tx: Peer) -> None:
    """Behaviour 58 (unknown delivery tags)."""
    tx.call_get("q")
    tx.send(method(1, "basic.ack", delivery_tag=1))
    tx.send(method(1, "basic.ack", delivery_tag=1))
    closed = tx.expect(1, "channel.close")
    assert (closed.code, closed.text) == (406, "PRECONDITION_FAILED - unknown delivery tag 1")


def test_refused_messages_return_at_the_commit(tx: Peer) -> None:
    for _ in range(3):
        tx.call_get("q")
    tx.send(method(1, "basic.nack", delivery_tag=2, multiple=True, requeue=True))
    tx.send(method(1, "basic.reject", delivery_tag=3, requeue=False))
    assert ready(tx) == 2
    tx.call(1, "tx.commit")
    assert rest(tx) == [(0, True), (1, True), *fresh(3, 4)]


def test_credit_comes_back_at_the_commit(tx: Peer) -> None:
    tx.call(1, "basic.qos", prefetch_count=2)
    tx.call(1, "basic.consume", queue="q")
    assert tx.bodies() == [b"0", b"1"]
    tx.send(method(1, "basic.ack", delivery_tag=2, multiple=True))
    assert tx.take() == []
    tx.call(1, "tx.commit")
    assert tx.bodies() == [b"2", b"3"]


@pytest.mark.parametrize("large", [False, True])
def test_dead_letters_are_part_of_the_transaction(node: Node, large: bool) -> None:
    """One record holds its publishes, its acks and what its rejects became, but for too much."""
    peer = node.connect(1, 2)
    peer.declare("dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    peer.declare("source", arguments=letters)
    body = bytes(1 << 20) if large else b"m"
    count = TX_BYTES_MAX // (1 << 20) + 1 if large else 3
    for _ in range(count):
        peer.send(publish(2, "", "source", body, delivery_mode=2))
        node.sync()
        peer.call_get("source")
    peer.call(1, "tx.select")
    peer.send(
        method(1, "basic.nack", delivery_tag=count, multiple=True),
        publish(1, "", "dead", b"published", delivery_mode=2),
        method(1, "tx.commit"),
    )
    node.begin_sync()
    assert node.group is not None
    if large:
        # Each letter has its own record, and those that take long to let go of follow in a turn.
        assert 1 < node.group.records <= 1 + count
    else:
        assert node.group.records == 1
    node.write()
    node.end_sync()
    node.sync()
    peer.expect(1, "tx.commit-ok")
    assert node.classic("dead").ready_count() == 1 + count
    again = killed(node)
    assert again.classic("dead").ready_count() == 1 + count
    assert again.classic("source").ready_count() == 0


# -- the channel -----------------------------------------------------------------------------------


def test_select_twice_is_fine_and_confirms_do_not_mix(node: Node, tx: Peer) -> None:
    """Behaviour 28 (no tx with confirms)."""
    tx.call(1, "tx.select")
    for mine, then in (("tx.select", "confirm.select"), ("confirm.select", "tx.select")):
        peer = node.connect()
        peer.call(1, mine)
        peer.send(method(1, then))
        assert peer.expect(1, "channel.close").code == 406


@pytest.mark.parametrize("name", ["tx.commit", "tx.rollback"])
def test_without_select_there_is_nothing_to_end(peer: Peer, name: str) -> None:
    """Behaviour 28 (no tx with confirms)."""
    peer.send(method(1, name))
    assert peer.expect(1, "channel.close").code == 406


def test_channels_have_transactions_of_their_own(tx: Peer) -> None:
    tx.call(2, "tx.select")
    tx.send(put(5), put(6, channel=2))
    tx.call(2, "tx.commit")
    tx.call(1, "tx.rollback")
    got = [tx.call_get("q").body for _ in range(ready(tx))]
    assert got == [b"0", b"1", b"2", b"3", b"4", b"6"]


def test_a_commit_waits_for_its_sync(node: Node) -> None:
    tx = transactional(node, durable=True)
    node.sync()
    tx.send(put(5), method(1, "tx.commit"))
    assert tx.take() == []
    node.begin_sync()
    node.write()
    assert tx.take() == []
    node.end_sync()
    tx.expect(1, "tx.commit-ok")
    # An empty one has nothing to wait for.
    tx.send(method(1, "tx.commit"))
    tx.expect(1, "tx.commit-ok")


def test_a_transaction_has_limits(tx: Peer) -> None:
    for _ in range(2):
        tx.send(*[publish(1, "", "q", b"")] * TX_MESSAGES_MAX)
        tx.call(1, "tx.rollback")
    tx.send(*[publish(1, "", "q", b"")] * TX_MESSAGES_MAX)
    assert tx.take() == []
    tx.send(publish(1, "", "q", b""))
    closed = tx.expect(1, "channel.close")
    assert closed.code == 406
    assert closed.text == (
        "PRECONDITION_FAILED - transaction has reached the maximum of 10000 uncommitted publishes; "
        "commit it in parts"
    )
    assert ready(tx) == 5


def test_a_transaction_has_a_limit_of_bytes(tx: Peer) -> None:
    large = publish(1, "", "q", bytes(1 << 20))
    tx.send(*[large] * (TX_BYTES_MAX // (1 << 20)))
    tx.call(1, "tx.rollback")
    # What was rolled back counts no more.
    tx.send(*[large] * (TX_BYTES_MAX // (1 << 20)))
    assert tx.take() == []
    tx.send(large, large)
    assert tx.expect(1, "channel.close").code == 406


def test_a_transaction_has_a_lower_limit_of_bytes_of_small_messages(tx: Peer) -> None:
    size = BODY_APART_BYTES // 2
    small = publish(1, "", "q", bytes(size))
    # Properties count too, so that one fewer has room.
    count = TX_SMALL_BYTES_MAX // size - 1
    tx.send(*[small] * count)
    tx.call(1, "tx.rollback")
    tx.send(*[small] * count, publish(1, "", "q", bytes(1 << 20)))
    assert tx.take() == []
    tx.send(small)
    assert tx.expect(1, "channel.close").code == 406


def test_many_small_messages_are_one_record_in_pieces(node: Node) -> None:
    """No buffer has all of it, which would be copied as it grows; a crash leaves all of it."""
    tx = transactional(node, durable=True)
    node.sync()
    bodies = [b"%04d" % number * 250 for number in range(500)]
    tx.send(*[publish(1, "", "q", body, delivery_mode=2) for body in bodies])
    tx.send(method(1, "tx.commit"))
    node.begin_sync()
    assert node.group is not None
    assert node.group.records == 1
    assert node.group.size > 6 * BODY_APART_BYTES
    assert max(len(part) for part in node.group.parts) < 2 * BODY_APART_BYTES
    node.write()
    node.end_sync()
    tx.expect(1, "tx.commit-ok")
    waiting = all_waiting(killed(node).waiting("q"))
    assert [one.message.body for one in waiting][-500:] == bodies


def test_a_transaction_takes_one_message_of_any_size_beside_others(tx: Peer) -> None:
    """What may be published may be part of a transaction, with others before and after it."""
    largest = publish(1, "", "q", bytes(TX_BYTES_MAX + 1))
    tx.send(
        publish(1, "", "q", b"before"), largest, publish(1, "", "q", bytes(TX_BYTES_MAX - 1000))
    )
    assert tx.take() == []
    tx.send(publish(1, "", "q", bytes(1000)))
    assert tx.expect(1, "channel.close").code == 406


# -- against a model -------------------------------------------------------------------------------

verbs = st.sampled_from(["publish", "get", "ack", "requeue", "commit", "rollback"])


@settings(max_examples=60)
@given(st.booleans(), st.lists(verbs, max_size=30))
def test_a_transaction_is_all_or_nothing(durable: bool, steps: list[str]) -> None:
    peer = transactional(Node(), durable=durable)
    waiting = list(range(5))
    unacked: dict[int, int] = {}
    puts: list[int] = []
    settled: list[tuple[int, int, bool]] = []
    tag, number = 0, 5
    for step in steps:
        if step == "publish":
            peer.send(put(number))
            puts.append(number)
            number += 1
        elif step == "get" and waiting:
            tag += 1
            unacked[tag] = waiting.pop(0)
            assert int(peer.call_get("q").body) == unacked[tag]
        elif step in {"ack", "requeue"} and unacked:
            one = max(unacked)
            settled.append((one, unacked.pop(one), step == "requeue"))
            name = "basic.ack" if step == "ack" else "basic.nack"
            again = {} if step == "ack" else {"requeue": True}
            peer.send(method(1, name, delivery_tag=one, **again))
        elif step == "commit":
            peer.call(1, "tx.commit")
            waiting = sorted(waiting + puts + [body for _, body, again in settled if again])
            puts, settled = [], []
        elif step == "rollback":
            peer.call(1, "tx.rollback")
            unacked |= {one: body for one, body, _ in settled}
            puts, settled = [], []
        assert ready(peer) == len(waiting)
    peer.call(1, "channel.close")
    left = [*waiting, *unacked.values(), *(body for _, body, _ in settled)]
    assert [body for body, _ in rest(peer)] == sorted(left)
    assert (peer.node.core.memory.held_bytes, peer.node.core.memory.held_messages) == (0, 0)
