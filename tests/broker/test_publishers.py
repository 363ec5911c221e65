"""Publisher deduplication: each queue takes the numbers of a publisher once, in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.core import Core
from leveret.broker.ownership import Owner
from leveret.broker.publishers.publishers import Publishers
from leveret.errors import PreconditionFailed
from leveret.limits import (
    CLIENT_PUBLISHER_EXPIRY_MS,
    PUBLISHER_EXPIRY_MS,
    PUBLISHERS_PER_QUEUE_MAX,
)
from leveret.message import Address, Message
from leveret.store.disks.recording import RecordingDisk
from leveret.store.journal.journal import Journal
from leveret.wire.numbered import Numbered, read_numbered
from support.node.core import Node, Peer
from support.wire.raw_codec import Typed, method, properties, publish

STREAM = {"x-queue-type": "stream"}
QUORUM = {"x-queue-type": "quorum"}


def declare(node: Node, queue: str = "q", **arguments: object) -> Peer:
    """A connection with a durable queue declared."""
    peer = node.connect()
    peer.declare(queue, arguments=arguments)
    return peer


def numbered(number: object, publisher: object = "p", **more: object) -> dict[str, object]:
    """The headers of a message."""
    return {"x-publisher": publisher, "x-publishing-id": number, **more}


def put(
    peer: Peer, *numbers: int, publisher: str = "p", queue: str = "q", persistent: bool = True
) -> None:
    """Publish a message for each number, the number as its body too."""
    for number in numbers:
        peer.send(
            publish(
                1, "", queue, str(number).encode(), delivery_mode=2 if persistent else 1,
                headers=numbered(number, publisher),
            )
        )  # fmt: skip


def bodies(node: Node, queue: str = "q") -> list[bytes]:
    """What lies in a queue or a stream."""
    node.sync()
    peer = node.connect()
    peer.call(1, "basic.qos", prefetch_count=1000)
    peer.call(1, "basic.consume", queue=queue, arguments={"x-stream-offset": "first"})
    found = peer.bodies()
    peer.lose()
    return found


def highest(node: Node, queue: str = "q") -> dict[str, int]:
    """The highest number of each publisher."""
    publishers = node.vhost.queues.by_name[queue].target.publishers
    known = {} if publishers is None else publishers.by_name
    return {name.decode(): int(publisher.number) for name, publisher in known.items()}


# -- the headers -----------------------------------------------------------------------------------


def read(headers: dict[str, object] | None, **more: Any) -> tuple[bytes, int] | None:
    found = read_numbered(properties(headers=headers, **more) if headers else properties(**more))
    return None if found is None else (found.publisher, int(found.number))


@pytest.mark.parametrize("kind", "bBsuIil")
def test_a_number_may_be_an_integer_of_any_width(kind: str) -> None:
    assert read(numbered(Typed(kind, 7), "ü")) == ("ü".encode(), 7)


def test_both_headers_are_found_wherever_they_are() -> None:
    assert read({"a": {"x-publisher": "other"}, **numbered(5), "z": [1]}) == (b"p", 5)
    assert read({"x-publishing-id": 0, "b": None, "x-publisher": "p" * 255}, app_id="x") == (
        b"p" * 255, 0,
    )  # fmt: skip
    assert read(numbered(2**63 - 1)) == (b"p", 2**63 - 1)


@pytest.mark.parametrize("headers", [None, {"x-publisher": "p"}, {"x-publisher": 1, "a": 2}])
def test_without_a_number_a_message_is_like_any_other(headers: dict[str, object] | None) -> None:
    assert read(headers) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"x-publishing-id": 1},
        numbered(-1),
        numbered("1"),
        numbered(1.0),
        numbered(True),
        numbered(None),
        numbered(1, ""),
        numbered(1, b"p"),
        numbered(1, 5),
        numbered(1, "p" * 256),
    ],
)
def test_what_cannot_be_is_refused(headers: dict[str, object]) -> None:
    with pytest.raises(PreconditionFailed):
        read(headers)
    node = Node()
    peer = declare(node)
    peer.send(publish(1, "", "q", b"m", headers=headers))
    assert peer.expect(1, "channel.close").code == 406
    assert node.vhost.queues.by_name["q"].ready_count() == 0


# -- what is taken ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{}, QUORUM, STREAM])
def test_each_number_is_taken_once_and_none_behind_a_higher_one(arguments: Any) -> None:
    node = Node()
    peer = declare(node, **arguments)
    put(peer, 0, 1, 1, 0, 5, 4, 5, 6)
    assert bodies(node) == [b"0", b"1", b"5", b"6"]
    assert node.vhost.queues.by_name["q"].target.deduplicated == 4
    assert highest(node) == {"p": 6}


def test_each_publisher_has_its_own_numbers() -> None:
    node = Node()
    peer = declare(node)
    put(peer, 5)
    put(peer, 1, 5, publisher="other")
    put(peer, 5, 6)
    assert bodies(node) == [b"5", b"1", b"5", b"6"]
    assert highest(node) == {"p": 6, "other": 5}


def test_each_queue_has_its_own_numbers() -> None:
    """One that was bound later takes what the others drop."""
    node = Node()
    peer = declare(node)
    peer.declare("late", arguments=STREAM)
    peer.call(1, "queue.bind", queue="q", exchange="amq.fanout", routing_key="")
    peer.send(publish(1, "amq.fanout", "", b"m", delivery_mode=2, headers=numbered(1)))
    peer.call(1, "queue.bind", queue="late", exchange="amq.fanout", routing_key="")
    peer.send(publish(1, "amq.fanout", "", b"m", delivery_mode=2, headers=numbered(1)))
    assert (bodies(node, "q"), bodies(node, "late")) == ([b"m"], [b"m"])


def test_messages_without_numbers_go_on_beside_them() -> None:
    node = Node()
    peer = declare(node)
    put(peer, 5)
    peer.send(publish(1, "", "q", b"m", headers={"x-publisher": "p"}))
    put(peer, 5)
    assert bodies(node) == [b"5", b"m"]


def test_with_copies_each_queue_counts_for_itself() -> None:
    node = Node()
    peer = declare(node)
    peer.declare("copy")
    put(peer, 1)
    peer.send(publish(1, "", "q", b"m", headers=numbered(1, "p", BCC=["copy"])))
    assert (bodies(node, "q"), bodies(node, "copy")) == ([b"1"], [b"m"])


def test_what_a_full_queue_refused_may_come_again() -> None:
    node = Node()
    full: Any = {"x-max-length": 1, "x-overflow": "reject-publish"}
    peer = declare(node, **full)
    put(peer, 1, 2)
    assert peer.call_get("q", no_ack=True).body == b"1"
    put(peer, 1, 2)
    assert bodies(node) == [b"2"]


def test_dead_letters_are_taken_whatever_their_number_is() -> None:
    """Those that retry by dead-lettering send the same message again and again."""
    node = Node()
    peer = node.connect()
    peer.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "d"})
    peer.declare("d", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    put(peer, 3)
    for queue in ("q", "d", "q"):
        got = peer.call_get(queue)
        peer.send(method(1, "basic.reject", delivery_tag=got.delivery_tag, requeue=False))
    assert node.vhost.queues.by_name["d"].ready_count() == 1
    assert highest(node, "d") == {}
    node.sync()
    again = Node(RecordingDisk(node.image()), clock=node.clock)
    assert highest(again, "d") == {}
    put(again.connect(), 3, 4, queue="d")
    assert bodies(again, "d") == [b"3", b"3", b"4"]


def test_in_a_transaction_they_count_with_its_commit() -> None:
    node = Node()
    peer = declare(node)
    peer.call(1, "tx.select")
    put(peer, 1, 2, 2)
    peer.call(1, "tx.rollback")
    put(peer, 1, 1, 2)
    assert highest(node) == {}
    peer.call(1, "tx.commit")
    assert bodies(node) == [b"1", b"2"]
    assert highest(node) == {"p": 2}


def test_a_duplicate_is_confirmed_when_its_first_one_is_synced() -> None:
    node = Node()
    first, second = declare(node), node.connect()
    for peer in (first, second):
        peer.call(1, "confirm.select")
    put(first, 1)
    put(second, 1)
    assert first.names() == second.names() == []
    node.sync()
    assert first.names() == second.names() == ["basic.ack"]
    put(second, 1)
    assert second.names() == ["basic.ack"]


def test_a_delayed_exchange_counts_and_its_queues_take_what_comes_of_it() -> None:
    """Delays change the order, which is no reason to drop anything."""
    node = Node()
    peer = declare(node)
    peer.call(
        1, "exchange.declare", exchange="later", type="x-delayed-message", durable=True,
        arguments={"x-delayed-type": "fanout"},
    )  # fmt: skip
    peer.call(1, "queue.bind", queue="q", exchange="later", routing_key="")
    for number, delay in ((1, 900), (2, 100), (1, 900), (3, 500)):
        headers = numbered(number, "p", **{"x-delay": delay})
        peer.send(publish(1, "later", "", b"%d" % number, delivery_mode=2, headers=headers))
    node.tick(1000)
    assert bodies(node) == [b"2", b"3", b"1"]
    assert highest(node) == {}


# -- for how long ----------------------------------------------------------------------------------


def test_an_idle_publisher_is_forgotten_and_no_sooner() -> None:
    node = Node()
    peer = declare(node)
    node.core.publisher_expiry_ms = 10_000
    put(peer, 7)
    node.tick(10_000)
    put(peer, 7)
    node.tick(10_000)
    # The duplicate was a sign of life.
    put(peer, 7, publisher="p")
    node.tick(10_001)
    put(peer, 3)
    assert bodies(node) == [b"7", b"3"]
    assert highest(node) == {"p": 3}
    node.tick(30_000)
    assert highest(node) == {}


def test_the_name_of_a_clients_connection_is_forgotten_sooner() -> None:
    """Connections that come and go must not use up the names that a user may have."""
    node = Node()
    peer = declare(node)
    mine = "leveret-client.1"
    put(peer, 7)
    node.tick(1000)
    put(peer, 7, publisher=mine)
    node.tick(CLIENT_PUBLISHER_EXPIRY_MS)
    put(peer, 7, publisher=mine)
    node.tick(CLIENT_PUBLISHER_EXPIRY_MS)
    assert highest(node) == {"p": 7, mine: 7}
    assert bodies(node) == [b"7", b"7"]
    node.tick(1)
    put(peer, 3, publisher=mine)
    put(peer, 3)
    assert bodies(node) == [b"7", b"7", b"3"]
    node.tick(2 * CLIENT_PUBLISHER_EXPIRY_MS + 2)
    assert highest(node) == {"p": 7}, "its table is looked through in time, too"


def test_an_expiry_below_that_of_clients_is_theirs_too() -> None:
    node = Node()
    peer = declare(node)
    node.core.publisher_expiry_ms = 10_000
    put(peer, 7, publisher="leveret-client.1")
    node.tick(10_001)
    assert highest(node) == {}


def test_the_most_publishers_and_one_more() -> None:
    core = Core(Journal())
    publishers = Publishers(core)
    for number in range(PUBLISHERS_PER_QUEUE_MAX):
        by = Owner(f"u{number % 4}", 1)
        assert publishers.has_room(b"%d" % number, by)
        publishers.note(Numbered(b"%d" % number, 1), by)
        core.now_ms = number
    assert publishers.has_room(b"0", Owner("u0", 1))
    assert not publishers.has_room(b"more", Owner("another", 1))
    # The first hundred are idle for long enough; it is looked at once in a second.
    core.now_ms = PUBLISHER_EXPIRY_MS + 100
    assert publishers.has_room(b"more", Owner("another", 1))
    assert len(publishers.by_name) < PUBLISHERS_PER_QUEUE_MAX


def test_one_publisher_too_many_is_told_so() -> None:
    node = Node()
    peer = declare(node)
    peer.call(1, "confirm.select")
    put(peer, 1)
    queue = node.vhost.queues.by_name["q"]
    assert queue.target.publishers is not None
    for number in range(PUBLISHERS_PER_QUEUE_MAX - 1):
        queue.target.publishers.learn(b"%d" % number, 1, node.clock.wall_ms())
    put(peer, 1, publisher="more")
    put(peer, 2)
    node.sync()
    assert [got.name for got in peer.take()][-2:] == ["basic.nack", "basic.ack"]
    assert bodies(node) == [b"1", b"2"]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 4)), max_size=40))
def test_replayed_it_is_what_it_was(steps: list[tuple[int, int, int]]) -> None:
    """Learned from the messages that were taken, again over what a snapshot held."""
    core = Core(Journal())
    core.publisher_expiry_ms = 5
    live = Publishers(core)
    taken: list[tuple[Numbered, int]] = []
    for publisher, number, later in steps:
        core.now_ms += later
        one = Numbered(b"%d" % publisher, number)
        known = live.known(one.publisher)
        if known is not None and number <= known.number:
            known.time_ms = live.core.now_ms
        else:
            live.note(one, None)
            taken.append((one, int(core.now_ms)))
    for snapshot in (False, True):
        again = Publishers(core)
        if snapshot:
            for name, known in live.by_name.items():
                again.learn(name, known.number, known.time_ms)
        for one, time_ms in taken:
            again.learn(one.publisher, one.number, time_ms)
        numbers = {name: known.number for name, known in live.by_name.items()}
        assert {name: known.number for name, known in again.by_name.items()} == numbers


# -- after a restart -------------------------------------------------------------------------------


def stopped(node: Node) -> Node:
    """The node after a clean stop."""
    return Node(RecordingDisk(node.stop()), clock=node.clock)


def killed(node: Node) -> Node:
    """The node after a kill, when all was synced."""
    node.sync()
    return Node(RecordingDisk(node.image()), clock=node.clock)


def checkpointed(node: Node) -> Node:
    """The node after a checkpoint and a kill."""
    node.take_checkpoint()
    return killed(node)


def all_of_it(node: Node) -> Node:
    """The node after several of them."""
    return checkpointed(stopped(checkpointed(killed(node))))


@pytest.mark.parametrize("end", [stopped, killed, checkpointed, all_of_it])
@pytest.mark.parametrize("arguments", [{}, STREAM])
def test_the_numbers_are_there_again(end: Callable[[Node], Node], arguments: Any) -> None:
    node = Node()
    peer = declare(node, **arguments)
    put(peer, 1, 2, 3)
    put(peer, 9, publisher="other")
    if not arguments:
        # Its number counts though the message is gone.
        for _ in range(3):
            peer.call_get("q", no_ack=True)
    again = end(node)
    assert highest(again) == {"p": 3, "other": 9}
    put(again.connect(), 3, 4)
    assert bodies(again)[-2:] == [b"9", b"4"]


def test_a_crash_loses_a_number_and_its_message_together() -> None:
    node = Node()
    peer = declare(node)
    put(peer, 1)
    node.sync()
    node.take_checkpoint()
    put(peer, 2)
    again = Node(RecordingDisk(node.image()), clock=node.clock)
    assert highest(again) == {"p": 1}
    put(again.connect(), 1, 2)
    assert bodies(again) == [b"1", b"2"]


def test_after_a_restart_they_are_forgotten_as_before_it() -> None:
    node = Node()
    peer = declare(node)
    put(peer, 7)
    again = checkpointed(node)
    again.core.publisher_expiry_ms = 10_000
    again.tick(10_001)
    put(again.connect(), 1)
    assert bodies(again) == [b"7", b"1"]


def test_a_deleted_queue_takes_its_numbers_with_it() -> None:
    node = Node()
    peer = declare(node)
    put(peer, 7)
    peer.call(1, "queue.delete", queue="q")
    peer.declare("q")
    put(peer, 1)
    assert bodies(killed(node)) == [b"1"]


def test_only_what_a_client_published_is_numbered() -> None:
    assert not Message(Address(b"", b"q"), properties(headers=numbered(1)), b"", 0, True).numbered


# -- hearing of it ---------------------------------------------------------------------------------


def test_what_was_taken_before_comes_back_to_those_who_ask_for_it() -> None:
    """Only where every queue had it, and never to a client that does not know of such returns."""
    node = Node()
    declare(node)
    asking = node.connect(**{"leveret.already_taken": True})
    plain = node.connect()
    for peer in (asking, plain):
        peer.call(1, "confirm.select")
    asking.call(1, "queue.bind", queue="q", exchange="amq.fanout", routing_key="")

    def sent(peer: Peer, number: int, mandatory: bool = True) -> list[tuple[str, int | None]]:
        node.sync()
        peer.take()
        message = publish(
            1, "amq.fanout", "", b"m", mandatory=mandatory, headers=numbered(number)
        )  # transient messages too
        peer.send(message)
        node.sync()
        return [(got.name, getattr(got, "code", None)) for got in peer.take()]

    assert sent(asking, 1) == [("basic.ack", None)]
    returned, ack = sent(asking, 1)
    assert returned == ("basic.return", 208)
    assert ack[0] == "basic.ack"
    assert [name for name, _ in sent(asking, 1, mandatory=False)] == ["basic.ack"]
    assert [name for name, _ in sent(plain, 1)] == ["basic.ack"]
    # A queue that was bound later takes it: it did not come in vain.
    asking.declare("later", durable=False)
    asking.call(1, "queue.bind", queue="later", exchange="amq.fanout", routing_key="")
    assert [name for name, _ in sent(asking, 1)] == ["basic.ack"]
    assert (
        node.vhost.queues.by_name["q"].ready_count()
        == node.vhost.queues.by_name["later"].ready_count()
        == 1
    )
