"""Super streams: declared as one, partitioned by the hash of the routing key, read as one.

Sources: RabbitMQ's super streams and its exchange type x-super-stream.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from leveret.errors import PreconditionFailed
from leveret.limits import SUPER_STREAM_PARTITIONS_MAX
from leveret.names import Name
from leveret.routing.murmur import partition_of
from leveret.store.disks.recording import RecordingDisk, crash_states
from support.node.core import Node, Peer, declare_super_stream
from support.wire.raw import Method
from support.wire.raw_codec import decode_properties, method, publish

KEYS = [f"hello{number}" for number in range(1, 11)]

#: Partitions of three of these keys by RabbitMQ's own clients: their tests agree on them.
PLACES = [1, 0, 1, 2, 0, 2, 0, 1, 0, 2]


def declare(peer: Peer, partitions: Any = 3, **more: Any) -> Method:
    """Declare the super stream `orders`."""
    arguments = {"x-queue-type": "stream", "x-super-stream-partitions": partitions}
    told = {name.replace("_", "-"): value for name, value in more.items()}
    return peer.declare("orders", arguments=arguments | told)


def refused(peer: Peer, partitions: Any = 3, channel: int = 1, **more: Any) -> str:
    """The text with which a declare is refused."""
    arguments = {"x-queue-type": "stream", "x-super-stream-partitions": partitions} | more
    peer.send(method(channel, "queue.declare", queue="orders", durable=True, arguments=arguments))
    closed = peer.expect(channel, "channel.close")
    assert closed.code == 406
    peer.send(method(channel, "channel.close-ok"))
    peer.call(channel, "channel.open")
    return str(closed.text)


@pytest.fixture
def peer(node: Node) -> Peer:
    """A connection that declared the super stream `orders` of three partitions."""
    peer = node.connect()
    declare(peer)
    return peer


def put(node: Node, *keys: str) -> None:
    """Publish messages whose bodies are their keys, and sync."""
    peer = node.connect()
    peer.send(*[publish(1, "orders", key, key.encode()) for key in keys])
    node.sync()


def read(node: Node, prefetch: int = 100, **arguments: Any) -> Peer:
    """A new connection that consumes all partitions from their first message."""
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=prefetch)
    told = {f"x-stream-{name.replace('_', '-')}": value for name, value in arguments.items()}
    reader.call(
        1, "basic.consume", queue="orders", consumer_tag="c",
        arguments={"x-stream-offset": "first"} | told,
    )  # fmt: skip
    return reader


def places(got: list[Method]) -> dict[str, tuple[str, int]]:
    """Where each delivery lay: partition and offset by the body."""
    found = {}
    for one in got:
        assert one.name == "basic.deliver", one
        headers = decode_properties(one.properties)["headers"]
        found[one.body.decode()] = (headers["x-stream-name"], headers["x-stream-offset"])
    return found


def held(node: Node) -> list[int]:
    """How many messages each partition holds."""
    return [int(node.stream(f"orders-{number}").ready_count()) for number in range(3)]


# -- the exchange ----------------------------------------------------------------------------------


def test_keys_have_the_partitions_that_rabbitmqs_clients_give_them(node: Node, peer: Peer) -> None:
    assert [partition_of(key.encode(), 3) for key in KEYS] == PLACES
    put(node, *KEYS)
    got = places(read(node).take())
    assert {key: int(name[-1]) for key, (name, _) in got.items()} == dict(
        zip(KEYS, PLACES, strict=True)
    )


def test_an_exchange_of_the_type_may_be_bound_by_hand(node: Node) -> None:
    """Its bindings' keys are numbers; queues of any type, and exchanges, can be partitions."""
    peer = node.connect()
    peer.call(1, "exchange.declare", exchange="x", type="x-super-stream", durable=True)
    put_to = publish(1, "x", "hello1", b"nowhere", mandatory=True)
    peer.send(put_to)
    peer.expect(1, "basic.return")
    for number, queue in enumerate(("a", "b", "c")):
        peer.declare(queue)
        peer.call(1, "queue.bind", queue=queue, exchange="x", routing_key=str(number))
    peer.send(*[publish(1, "x", key, b"") for key in KEYS])
    counts = [int(node.classic(queue).ready_count()) for queue in "abc"]
    assert counts == [PLACES.count(number) for number in range(3)]
    peer.call(1, "queue.unbind", queue="c", exchange="x", routing_key="2")
    peer.send(*[publish(1, "x", key, b"") for key in KEYS])
    assert int(node.classic("c").ready_count()) == counts[2]
    peer.send(method(1, "queue.bind", queue="a", exchange="x", routing_key="first"))
    closed = peer.expect(1, "channel.close")
    assert (closed.code, "must be an integer: 'first'" in closed.text) == (406, True)


# -- declaring -------------------------------------------------------------------------------------


def test_a_declare_makes_all_parts(node: Node) -> None:
    peer = node.connect()
    told = declare(peer, x_max_age="7D")
    assert (told.queue, told.message_count, told.consumer_count) == ("orders", 0, 0)
    assert sorted(node.vhost.queues.by_name) == ["orders-0", "orders-1", "orders-2"]
    exchange = node.vhost.exchanges.by_name["orders"]
    assert (exchange.kind, exchange.durable) == ("x-super-stream", True)
    assert [one.binding_key for one in exchange.bindings.values()] == ["0", "1", "2"]
    arguments = node.stream("orders-1").arguments
    assert arguments == {
        "x-queue-type": "stream", "x-max-age": "7D",
        "x-super-stream": "orders", "x-super-stream-partition": 1,
    }  # fmt: skip


def test_a_declare_again_is_fine_and_says_what_is_there(node: Node, peer: Peer) -> None:
    put(node, *KEYS)
    reader = read(node)
    for passive in (False, True):
        peer.send(
            method(
                1, "queue.declare", queue="orders", durable=True, passive=passive,
                arguments={"x-queue-type": "stream", "x-super-stream-partitions": 3},
            )
        )  # fmt: skip
        told = peer.expect(1, "queue.declare-ok")
        assert (told.message_count, told.consumer_count) == (10, 3)
    assert len(reader.take()) == 10


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"partitions": 4}, "inequivalent arg 'x-super-stream-partitions'"),
        ({"x-max-age": "1D"}, "inequivalent arg 'x-max-age'"),
        ({"partitions": 0}, "expected 1 to 256, got 0"),
        ({"partitions": SUPER_STREAM_PARTITIONS_MAX + 1}, "expected 1 to 256, got 257"),
        ({"partitions": "3"}, "expected integer, got longstr"),
        ({"partitions": True}, "expected integer, got bool"),
        ({"x-queue-type": "classic"}, "its partitions are of the type stream"),
        ({"x-max-length": 5}, "invalid arg 'x-max-length'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_difference_or_a_mistake_is_refused(
    node: Node, peer: Peer, change: dict[str, Any], says: str
) -> None:
    assert says in refused(peer, **change)
    assert len(node.vhost.queues.by_name) == 3


def test_it_is_durable_and_shared(node: Node) -> None:
    for flags in ({}, {"durable": True, "exclusive": True}, {"durable": True, "auto_delete": True}):
        peer = node.connect()
        arguments = {"x-super-stream-partitions": 2}
        peer.send(method(1, "queue.declare", queue="orders", arguments=arguments, **flags))
        assert peer.expect(1, "channel.close").code == 406
    assert not node.vhost.queues.by_name


def test_a_name_that_something_else_has_is_refused_whole(node: Node) -> None:
    peer = node.connect()
    peer.declare("orders-2", arguments={"x-queue-type": "stream"})
    assert "there is a queue 'orders-2' already" in refused(peer)
    assert sorted(node.vhost.queues.by_name) == ["orders-2"]
    assert "orders" not in node.vhost.exchanges.by_name
    peer.call(1, "queue.delete", queue="orders-2")
    peer.declare("orders")
    assert "there is a queue of that name" in refused(peer)
    peer.call(1, "queue.delete", queue="orders")
    peer.call(1, "exchange.declare", exchange="orders", type="x-super-stream", durable=True)
    assert "there is an exchange of that name" in refused(peer)
    peer.call(1, "exchange.delete", exchange="orders")
    declare(peer)
    peer.send(method(1, "queue.declare", queue="orders", durable=True))
    assert "no queue can have its name" in peer.expect(1, "channel.close").text


@pytest.mark.parametrize("limit", ["operator", "house"])
def test_too_many_queues_are_refused_whole(node: Node, limit: str) -> None:
    peer = node.connect()
    peer.declare("one")
    if limit == "operator":
        node.vhost.limits.by_name["max-queues"] = 3
    else:
        node.vhost.queues.count_max = 3
    refused(peer)
    assert sorted(node.vhost.queues.by_name) == ["one"]
    assert "orders" not in node.vhost.exchanges.by_name
    declare(peer, 2)


def test_names_have_their_limits(node: Node) -> None:
    arguments: dict[str, object] = {"x-super-stream-partitions": 11}
    for name in ("", "x" * 253):
        with pytest.raises(PreconditionFailed, match="is empty or too long"):
            declare_super_stream(node.vhost, Name(name), arguments)
    assert declare_super_stream(node.vhost, Name("x" * 252), arguments)
    peer = node.connect()
    peer.send(method(1, "queue.declare", queue="amq.x", durable=True, arguments=arguments))
    assert peer.expect(1, "channel.close").code == 403


def test_a_partition_that_was_deleted_moves_no_keys_and_comes_back_empty(
    node: Node, peer: Peer
) -> None:
    put(node, *KEYS)
    peer.call(1, "queue.delete", queue="orders-1")
    lost = [key for key, place in zip(KEYS, PLACES, strict=True) if place == 1]
    peer.send(*[publish(1, "orders", key, key.encode(), mandatory=True) for key in KEYS])
    node.sync()
    returned = peer.take()
    assert {got.name for got in returned} == {"basic.return"}
    assert [got.body.decode() for got in returned] == lost
    assert [int(node.stream(f"orders-{number}").ready_count()) for number in (0, 2)] == [8, 6]
    declare(peer)
    assert held(node) == [8, 0, 6]
    put(node, *KEYS)
    assert held(node) == [12, 3, 9]


# -- after a crash ---------------------------------------------------------------------------------


def test_it_is_one_record(node: Node) -> None:
    """A crash leaves all of it or nothing."""
    peer = node.connect()
    before = int(node.journal.group)
    arguments = {"x-queue-type": "stream", "x-super-stream-partitions": 3}
    peer.send(method(1, "queue.declare", queue="orders", durable=True, arguments=arguments))
    assert peer.take() == [], "its reply waits for the sync"
    assert int(node.journal.group) == before
    assert node.begin_sync()
    assert node.group is not None
    assert int(node.group.records) == 1
    node.write()
    node.end_sync()
    peer.expect(1, "queue.declare-ok")


def test_a_crash_leaves_all_of_it_or_nothing(node: Node) -> None:
    """At any moment of a declare and of a delete, with any part of what was written."""
    assert node.recording is not None
    peer = node.connect()
    since = node.trace_length()
    declare(peer)
    peer.call(1, "queue.delete", queue="orders")
    node.take_checkpoint()
    seen = set()
    chance = random.Random(1)
    for state in crash_states(node.recording, chance.randrange, 3, since=since):
        again = Node(RecordingDisk(state.image), begin=False).vhost
        exchange = again.exchanges.by_name.get("orders")
        bindings = 0 if exchange is None else len(exchange.bindings)
        seen.add((exchange is not None, len(again.queues.by_name), bindings))
    assert seen == {(False, 0, 0), (True, 3, 3)}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_it_comes_back(node: Node, peer: Peer, checkpoint: bool) -> None:
    put(node, *KEYS)
    reader = read(node, consumer="app")
    assert len(reader.take()) == 10
    reader.send(method(1, "basic.ack", delivery_tag=10, multiple=True))
    reader.lose()
    if checkpoint:
        node.take_checkpoint()
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert held(again) == [4, 3, 3]
    assert read(again, consumer="app").take() == []
    assert sorted(places(read(again).take())) == sorted(KEYS)
    declare(again.connect())
    again.connect().call(1, "queue.delete", queue="orders")
    gone = Node(RecordingDisk(again.image()))
    assert not gone.vhost.queues.by_name
    assert "orders" not in gone.vhost.exchanges.by_name


def test_a_delete_takes_all_and_ends_its_consumers(node: Node, peer: Peer) -> None:
    put(node, *KEYS)
    reader, named = read(node), read(node, consumer="app")
    for one in (reader, named):
        assert len(one.take()) == 10
    for condition in ("if_unused", "if_empty"):
        other = node.connect()
        other.send(method(1, "queue.delete", queue="orders", **{condition: True}))
        assert other.expect(1, "channel.close").code == 406
    assert peer.call(1, "queue.delete", queue="orders").message_count == 10
    for one in (reader, named):
        assert one.names() == ["basic.cancel"]
        one.send(method(1, "basic.ack", delivery_tag=10, multiple=True))
        one.call(1, "channel.close")
    assert not node.vhost.queues.by_name
    assert "orders" not in node.vhost.exchanges.by_name
    peer.call(1, "queue.delete", queue="orders")


# -- reading ---------------------------------------------------------------------------------------


def test_one_consumer_reads_all_in_the_order_of_each_partition(node: Node, peer: Peer) -> None:
    reader = read(node)
    keys = [f"k{number}" for number in range(60)]
    put(node, *keys)
    got = places(reader.take())
    assert sorted(got) == sorted(keys)
    for number in range(3):
        mine = [(key, offset) for key, (name, offset) in got.items() if name[-1] == str(number)]
        assert [offset for _, offset in mine] == list(range(len(mine)))
        assert [key for key, _ in mine] == [
            k for k in keys if partition_of(k.encode(), 3) == number
        ]


def test_the_prefetch_is_each_partitions(node: Node, peer: Peer) -> None:
    reader = read(node, prefetch=2)
    put(node, *[f"k{number}" for number in range(60)])
    got = reader.take()
    assert len(got) == 6
    reader.send(method(1, "basic.ack", delivery_tag=6, multiple=True))
    assert len(reader.take()) == 6


def test_filters_and_offsets_count_in_every_partition(node: Node, peer: Peer) -> None:
    put(node, *KEYS)
    reader = read(node, filter_routing_key=["hello1", "hello2"])
    assert sorted(places(reader.take())) == ["hello1", "hello2"]
    assert len(places(read(node, offset=-1).take())) == 3


def test_a_cancel_ends_all_parts(node: Node, peer: Peer) -> None:
    reader = read(node, consumer="app")
    assert [len(node.stream(f"orders-{n}").consumers) for n in range(3)] == [1, 1, 1]
    reader.call(1, "basic.cancel", consumer_tag="c")
    assert [len(node.stream(f"orders-{n}").consumers) for n in range(3)] == [0, 0, 0]
    put(node, *KEYS)
    assert reader.take() == []


def test_a_partition_that_goes_ends_the_consumer_once(node: Node, peer: Peer) -> None:
    reader = read(node)
    peer.call(1, "queue.delete", queue="orders-1")
    assert reader.names() == ["basic.cancel"]
    put(node, *KEYS)
    assert reader.take() == []
    assert [len(node.stream(f"orders-{n}").consumers) for n in (0, 2)] == [0, 0]


def test_what_is_refused_in_one_partition_is_refused_in_all(node: Node, peer: Peer) -> None:
    alone = node.connect()
    alone.call(1, "basic.qos", prefetch_count=1)
    alone.call(1, "basic.consume", queue="orders-2", exclusive=True)
    late = node.connect()
    late.call(1, "basic.qos", prefetch_count=1)
    late.send(method(1, "basic.consume", queue="orders"))
    assert late.expect(1, "channel.close").code == 403
    assert [len(node.stream(f"orders-{n}").consumers) for n in range(3)] == [0, 0, 1]


# -- sharing ---------------------------------------------------------------------------------------


def partitions_by(reader: Peer) -> set[str]:
    """The partitions of what came."""
    return {name for name, _ in places(reader.take()).values()}


def ack_all(reader: Peer) -> None:
    """Ack all deliveries."""
    reader.send(method(1, "basic.ack", delivery_tag=0, multiple=True))


def test_those_of_one_name_share_the_partitions(node: Node, peer: Peer) -> None:
    """Nothing comes twice, nothing is passed over, while they come and go."""
    readers = [read(node, consumer="app")]
    number = 0
    seen: list[str] = []

    def more() -> list[set[str]]:
        nonlocal number
        put(node, *[f"k{n}" for n in range(number, number + 40)])
        number += 40
        parts = []
        for reader in readers:
            got = places(reader.take())
            seen.extend(got)
            parts.append({name for name, _ in got.values()})
            ack_all(reader)
        return parts

    everything = {"orders-0", "orders-1", "orders-2"}
    assert more() == [everything]
    readers.append(read(node, consumer="app"))
    assert more() == [{"orders-0", "orders-2"}, {"orders-1"}]
    readers.append(read(node, consumer="app"))
    assert more() == [{"orders-0"}, {"orders-1"}, {"orders-2"}]
    readers.append(read(node, consumer="app"))
    assert more()[3] == set(), "a fourth one waits"
    readers.pop(1).lose()
    assert more() == [{"orders-0"}, {"orders-1"}, {"orders-2"}]
    while len(readers) > 1:
        readers.pop().lose()
    assert more() == [everything]
    assert sorted(seen) == sorted(f"k{n}" for n in range(number))


def test_a_partition_changes_hands_when_what_is_out_is_settled(node: Node, peer: Peer) -> None:
    first = read(node, prefetch=1, consumer="app")
    put(node, *KEYS)
    held_by_first = places(first.take())
    assert {name for name, _ in held_by_first.values()} == {"orders-0", "orders-1", "orders-2"}
    second = read(node, consumer="app")
    assert second.take() == []
    ack_all(first)
    assert partitions_by(first) == {"orders-0", "orders-2"}
    assert partitions_by(second) == {"orders-1"}


def test_a_consumer_of_a_single_partition_counts_in_the_name(node: Node, peer: Peer) -> None:
    whole = read(node, consumer="app")
    single = node.connect()
    single.call(1, "basic.qos", prefetch_count=100)
    single.call(
        1, "basic.consume", queue="orders-1",
        arguments={"x-stream-consumer": "app", "x-stream-offset": "first"},
    )  # fmt: skip
    put(node, *KEYS)
    assert partitions_by(whole) == {"orders-0", "orders-2"}
    assert partitions_by(single) == {"orders-1"}


# -- permissions -----------------------------------------------------------------------------------


def test_permissions_are_asked_for_the_exchange_and_each_partition(node: Node) -> None:
    node.add_user("all", configure="^orders", write="^orders", read="^orders")
    node.add_user("some", configure="^orders(-[01])?$", write=".*", read="^orders(-[01])?$")
    arguments = {"x-queue-type": "stream", "x-super-stream-partitions": 3}
    some = node.connect_as("some")
    some.send(method(1, "queue.declare", queue="orders", durable=True, arguments=arguments))
    assert some.expect(1, "channel.close").code == 403
    assert not node.vhost.queues.by_name
    owner = node.connect_as("all")
    owner.declare("orders", arguments=arguments)
    for name, values in (
        ("basic.consume", {"queue": "orders"}),
        ("queue.delete", {"queue": "orders"}),
    ):
        some = node.connect_as("some")
        some.call(1, "basic.qos", prefetch_count=1)
        some.send(method(1, name, **values))
        assert some.expect(1, "channel.close").code == 403, name
    assert len(node.vhost.queues.by_name) == 3
    owner.call(1, "basic.qos", prefetch_count=5)
    owner.call(1, "basic.consume", queue="orders")
    node.broker.users.set_permission("all", "/", "^orders", "^orders", "^orders(-[01])?$")
    node.run()
    assert owner.names() == ["basic.cancel"]
    assert not node.stream("orders-0").consumers
