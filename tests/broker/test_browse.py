"""Browsing: what waits is read by position, key and headers, and nothing about it changes."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.counters import QueueCounts
from leveret.broker.queue.browse import BrowseFilter, browse
from leveret.broker.stats.stats import QueueStats
from leveret.limits import OUTPUT_BYTES_HIGH, SLICE_MESSAGES
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer, all_waiting
from support.wire.raw_codec import method, publish


@pytest.fixture
def owner(peer: Peer) -> Peer:
    """A client with the queue `q`, bound to amq.topic by everything."""
    peer.declare("q")
    peer.call(1, "queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    return peer


def put(peer: Peer, *numbers: int, key: str = "q", exchange: str = "", **props: Any) -> None:
    """Publish numbers."""
    peer.send(
        *[publish(1, exchange, key, b"%d" % number, delivery_mode=2, **props) for number in numbers]
    )


def consume(peer: Peer, wanted: object = True, **values: object) -> None:
    """Begin to browse `q`."""
    arguments = {"x-browse": wanted}
    peer.send(method(1, "basic.consume", queue="q", arguments=arguments, **values))
    peer.expect(1, "basic.consume-ok")


def browsed(peer: Peer) -> list[int]:
    """What was delivered up to the end, which must have come."""
    *deliveries, last = peer.take()
    assert last.name == "basic.cancel"
    assert {one.name for one in deliveries} <= {"basic.deliver"}
    return [int(one.body) for one in deliveries]


def state(node: Node) -> tuple[object, ...]:
    """All that a look at `q` must not change."""
    stats = QueueStats("/", node.classic("q"))
    return tuple(value for name, value in sorted(vars_of(stats).items()))


def vars_of(stats: object) -> dict[str, object]:
    """The values of a snapshot and of the counts in it, compiled or not."""
    values = {name: getattr(stats, name) for name in dir(stats) if not name.startswith("_")}
    return {
        name: vars_of(value) if isinstance(value, QueueCounts) else value
        for name, value in values.items()
        if not callable(value)
    }


# -- consumers that browse -------------------------------------------------------------------------


def test_a_consumer_is_given_what_waits_and_ends(owner: Peer) -> None:
    node = owner.node
    put(owner, *range(5))
    before = state(node)
    reader = node.connect()
    consume(reader, consumer_tag="c")
    got = reader.take()
    assert [one.body for one in got[:-1]] == [b"%d" % number for number in range(5)]
    assert [one.delivery_tag for one in got[:-1]] == [1, 2, 3, 4, 5]
    assert not any(one.redelivered for one in got[:-1])
    assert (got[-1].name, got[-1].consumer_tag) == ("basic.cancel", "c")
    assert state(node) == before
    # The next one who takes them sees no sign of it, and the tag is free.
    assert not owner.call_get("q").redelivered
    consume(reader, consumer_tag="c")
    assert browsed(reader) == [1, 2, 3, 4]


def test_who_does_not_want_to_know_is_not_told(owner: Peer) -> None:
    put(owner, 1)
    reader = owner.node.connect(consumer_cancel_notify=False)
    consume(reader)
    assert reader.names() == ["basic.deliver"]
    assert not reader.connection.channels.by_number[1].consumers


def test_an_empty_queue_ends_at_once(owner: Peer) -> None:
    consume(owner)
    assert browsed(owner) == []


def test_what_comes_later_is_not_seen(owner: Peer) -> None:
    node = owner.node
    put(owner, *range(3))
    reader = node.connect()
    reader.send(
        method(1, "basic.consume", queue="q", arguments={"x-browse": True}),
        publish(1, "", "q", b"9"),
    )
    reader.expect(1, "basic.consume-ok")
    assert browsed(reader) == [0, 1, 2]


def test_handed_out_and_returned_messages(owner: Peer) -> None:
    """What a consumer holds does not wait; what came back does, with its mark."""
    put(owner, *range(6))
    for _ in range(4):
        owner.call_get("q")
    for tag in (3, 1):
        owner.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
    consume(owner)
    got = owner.take()[:-1]
    assert [(int(one.body), one.redelivered) for one in got] == [
        (0, True), (2, True), (4, False), (5, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("position", "expected"),
    [(0, [0, 1, 2, 3, 4]), (2, [2, 3, 4]), (9, []), (-2, [3, 4]), (-9, [0, 1, 2, 3, 4])],
)
def test_by_position(owner: Peer, position: int, expected: list[int]) -> None:
    put(owner, *range(5))
    consume(owner, {"position": position})
    assert browsed(owner) == expected


def test_by_routing_key(owner: Peer) -> None:
    for number, key in enumerate(["a.b", "a.c", "x", "a.b.c"]):
        put(owner, number, key=key, exchange="amq.topic")
    for pattern, expected in (("a.*", [0, 1]), ("a.#", [0, 1, 3]), ("x", [2]), ("none", [])):
        consume(owner, {"routing-key": pattern})
        assert browsed(owner) == expected


def test_by_headers(owner: Peer) -> None:
    put(owner, 0, headers={"kind": "a", "n": 1})
    put(owner, 1, headers={"kind": "b", "n": 1})
    put(owner, 2)
    for headers, expected in (
        ({"kind": "a"}, [0]),
        ({"n": 1}, [0, 1]),
        ({"x-match": "any", "kind": "b", "n": 2}, [1]),
        ({}, [0, 1, 2]),
    ):
        consume(owner, {"headers": headers})
        assert browsed(owner) == expected


def test_by_all_of_them(owner: Peer) -> None:
    """The position counts all that waits, not only what is wanted."""
    for number in range(6):
        headers = {"even": number % 2 == 0}
        put(owner, number, key="ab"[number % 3 == 0], exchange="amq.topic", headers=headers)
    consume(owner, {"position": 2, "routing-key": "a", "headers": {"even": True}})
    assert browsed(owner) == [2, 4]


@pytest.mark.parametrize(
    "wanted",
    [
        1, "all", [], {"offset": 1}, {"position": "1"}, {"position": 2**53}, {"position": True},
        {"routing-key": 1},
        {"headers": "x"}, {"headers": {"x-match": "most"}},
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_406(owner: Peer, wanted: object) -> None:
    owner.send(method(1, "basic.consume", queue="q", arguments={"x-browse": wanted}))
    assert owner.expect(1, "channel.close").code == 406


def test_a_stream_is_not_browsed(peer: Peer) -> None:
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.send(method(1, "basic.consume", queue="s", arguments={"x-browse": True}))
    assert peer.expect(1, "channel.close").code == 406


# -- what it is to others --------------------------------------------------------------------------


def test_it_is_no_consumer_of_the_queue(peer: Peer) -> None:
    """Neither for exclusive ones, nor a single active one, nor for auto-delete."""
    arguments = {"x-single-active-consumer": True}
    peer.call(1, "queue.declare", queue="q", auto_delete=True, arguments=arguments)
    peer.call(1, "basic.consume", queue="q", consumer_tag="c")
    put(peer, 1)
    peer.send(method(1, "basic.nack", delivery_tag=1, requeue=True))
    assert len(peer.bodies()) == 2
    reader = peer.node.connect()
    reader.reads = False
    reader.connection.writable = False
    consume_unread = {"queue": "q", "arguments": {"x-browse": True}}
    reader.send(method(1, "basic.consume", **consume_unread))
    assert peer.call(1, "queue.declare", queue="q", passive=True).consumer_count == 1
    peer.call(1, "basic.cancel", consumer_tag="c")
    assert "q" not in peer.node.vhost.queues.by_name
    reader.read_on()
    assert reader.names() == ["basic.consume-ok", "basic.cancel"]


def test_acks_are_credit_and_nothing_else(owner: Peer) -> None:
    node = owner.node
    put(owner, *range(5))
    before = state(node)
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=2)
    consume(reader)
    assert reader.bodies() == [b"0", b"1"]
    reader.send(method(1, "basic.ack", delivery_tag=1))
    reader.send(method(1, "basic.reject", delivery_tag=2, requeue=True))
    assert reader.bodies() == [b"2", b"3"]
    reader.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=False))
    assert browsed(reader) == [4]
    reader.call(1, "basic.recover", requeue=True)
    reader.lose()
    assert state(node) == before
    assert [owner.call_get("q").redelivered for _ in range(5)] == [False] * 5


def test_a_browser_that_is_cancelled_or_lost_gets_no_more(owner: Peer) -> None:
    put(owner, *range(3))
    reader = owner.node.connect()
    reader.call(1, "basic.qos", prefetch_count=1)
    consume(reader, consumer_tag="c")
    assert reader.bodies() == [b"0"]
    reader.call(1, "basic.cancel", consumer_tag="c")
    reader.send(method(1, "basic.ack", delivery_tag=1))
    assert reader.take() == []
    consume(reader, consumer_tag="c")
    reader.lose()
    assert owner.node.classic("q").ready_count() == 3


def test_who_does_not_read_is_waited_for(owner: Peer) -> None:
    large = OUTPUT_BYTES_HIGH // 2
    owner.send(*[publish(1, "", "q", b"%d" % number * large) for number in range(8)])
    reader = owner.node.connect()
    reader.reads = False
    reader.send(method(1, "basic.consume", queue="q", arguments={"x-browse": True}, no_ack=True))
    assert len(reader.waiting) < 4 * OUTPUT_BYTES_HIGH
    while True:
        reader.read_on()
        names = [heard.method.name for heard in reader.heard]
        if names[-1] == "basic.cancel":
            break
    assert names.count("basic.deliver") == 8


def test_a_long_queue_is_browsed_in_slices_while_others_take_from_it(owner: Peer) -> None:
    node = owner.node
    count = 2 * SLICE_MESSAGES + 100
    put(owner, *range(count))
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=10)
    consume(reader)
    assert len(reader.bodies()) == 10
    # Half of the queue goes away meanwhile.
    taker = node.connect()
    taker.call(1, "basic.qos", prefetch_count=count // 2)
    taker.call(1, "basic.consume", queue="q", consumer_tag="t")
    assert len(taker.bodies()) == count // 2
    taker.send(method(1, "basic.ack", delivery_tag=count // 2, multiple=True))
    taker.lose()
    reader.call(1, "basic.qos")
    seen: list[int] = []
    while True:
        reader.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
        got = reader.take()
        seen += [int(one.body) for one in got if one.name == "basic.deliver"]
        if got[-1].name == "basic.cancel":
            break
    assert seen == list(range(count))[-len(seen) :]
    assert len(seen) <= count // 2


# -- pages for management --------------------------------------------------------------------------


def test_pages_follow_each_other(owner: Peer) -> None:
    node = owner.node
    put(owner, *range(25))
    before = state(node)
    queue = node.classic("q")
    after: int | None = None
    pages: list[list[int]] = []
    while True:
        page = browse(queue, BrowseFilter(position=3), after, 10)
        pages.append([int(item.message.body) for item in page.items])
        after = page.after
        if after is None:
            break
    assert pages == [list(range(3, 13)), list(range(13, 23)), [23, 24]]
    assert state(node) == before


def test_a_page_looks_at_no_more_than_a_slice(owner: Peer) -> None:
    put(owner, *range(SLICE_MESSAGES + 1))
    put(owner, 7, headers={"id": 1})
    queue = owner.node.classic("q")
    wanted = BrowseFilter(headers={"id": 1})
    page = browse(queue, wanted)
    assert page.items == []
    assert page.after is not None
    page = browse(queue, wanted, page.after)
    assert [int(item.message.body) for item in page.items] == [7]


@pytest.mark.parametrize(
    "wanted",
    [
        BrowseFilter(headers={"none": 1}),
        BrowseFilter(headers={"x-match": "any", **{f"none{n}": 1 for n in range(50_000)}}),
        BrowseFilter(routing_key=".".join(["#.a"] * 60) + ".b"),
    ],
)
def test_a_slice_ends_early_where_messages_take_long_to_judge(
    owner: Peer, wanted: BrowseFilter
) -> None:
    """A message of 4,096 headers takes 0.9 ms, 50,000 conditions or 60 wildcards as long."""
    headers = {str(number): None for number in range(4000)}
    key = ".".join(["a"] * 127)
    put(owner, *range(10), exchange="amq.topic", key=key, headers=headers)
    queue = owner.node.classic("q")
    page = browse(queue, wanted)
    assert page.items == []
    assert page.after is not None
    before = page.after
    page = browse(queue, wanted, before)
    assert page.after is None or before < page.after
    # A consumer that browses waits for others as well, and gets to the end.
    consume(owner, {"headers": {"none": 1}})
    assert browsed(owner) == []


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}])
def test_any_order_of_coming_and_going(peer: Peer, arguments: dict[str, object]) -> None:
    """Also after a restart, where all that waits came back."""
    node = peer.node
    peer.declare("q", arguments=arguments)
    for number in range(10):
        put(peer, number, priority=number % 4)
    for _ in range(6):
        peer.call_get("q")
    for tag in (5, 2, 4):
        peer.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
    peer.send(method(1, "basic.ack", delivery_tag=1))
    queue = node.classic("q")
    waiting = [int(item.message.body) for item in all_waiting(queue)]
    found = [int(item.message.body) for item in browse(queue, BrowseFilter()).items]
    assert found == waiting == sorted(found)
    assert len(found) == 7
    again = Node(RecordingDisk(node.stop()))
    put(again.connect(), 10, 11)
    found = [int(item.message.body) for item in browse(again.classic("q"), BrowseFilter()).items]
    assert found[-2:] == [10, 11]
    assert len(found) == 11
