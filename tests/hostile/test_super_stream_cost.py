"""A super stream of many partitions is declared whole or not at all, at a bounded cost."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from leveret.broker.policies.policy import make_policy
from leveret.broker.stream.group import StreamGroup
from leveret.limits import (
    STREAM_FILTER_VALUES_MAX,
    SUPER_STREAM_BYTES_MAX,
    SUPER_STREAM_PARTITIONS_MAX,
)
from leveret.management.gate import ACCESS, can_read
from leveret.management.routes.lists import permitted
from leveret.management.routes.shared import BROKER
from leveret.management.routes.streams.super_streams import super_streams
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

MOST = SUPER_STREAM_PARTITIONS_MAX


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def peer(node: Node) -> Peer:
    return node.connect()


def ask(partitions: int = MOST, name: str = "s", **arguments: Any) -> bytes:
    told = {"x-super-stream-partitions": partitions} | arguments
    return method(1, "queue.declare", queue=name, durable=True, arguments=told)


def parts(node: Node) -> tuple[int, int]:
    """How many streams and how many bindings of `s` there are."""
    exchange = node.vhost.exchanges.by_name.get("s")
    return len(node.vhost.queues.by_name), 0 if exchange is None else len(exchange.bindings)


def definition_bytes(node: Node) -> int:
    return int(node.core.accounts.definition_bytes)


def test_all_parts_are_made_at_once(node: Node, peer: Peer) -> None:
    peer.receive(ask())
    assert parts(node) == (MOST, MOST)
    node.run()
    assert peer.take() == [], "the reply waits for the sync"
    node.sync()
    assert peer.expect(1, "queue.declare-ok").queue == "s"


def test_a_crash_before_the_sync_leaves_nothing(node: Node, peer: Peer) -> None:
    peer.declare("before", durable=True)
    peer.receive(ask())
    again = Node(RecordingDisk(node.image()))
    assert sorted(again.vhost.queues.by_name) == ["before"]
    assert "s" not in again.vhost.exchanges.by_name
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert len(again.vhost.queues.by_name) == MOST + 1
    assert len(again.vhost.exchanges.by_name["s"].bindings) == MOST


def test_two_declares_at_once_make_one(node: Node, peer: Peer) -> None:
    other = node.connect()
    peer.receive(ask())
    booked = definition_bytes(node)
    other.receive(ask())
    node.sync()
    for one in (peer, other):
        one.expect(1, "queue.declare-ok")
    assert parts(node) == (MOST, MOST)
    assert definition_bytes(node) == booked
    peer.call(1, "queue.delete", queue="s")
    assert parts(node) == (0, 0)


@pytest.mark.parametrize("taken", ["s", "s-7"])
def test_a_name_that_is_taken_closes_the_channel(node: Node, peer: Peer, taken: str) -> None:
    """Nothing of it is left, and the connection goes on with what comes next."""
    other = node.connect()
    before = definition_bytes(node)
    other.receive(method(1, "queue.declare", queue=taken))
    peer.receive(ask() + method(2, "channel.open") + method(2, "queue.declare", queue="next"))
    assert definition_bytes(node) > before
    node.sync()
    closed = peer.expect(1, "channel.close")
    assert (closed.code, closed.class_id, closed.method_id) == (406, 50, 10)
    peer.expect(2, "channel.open-ok")
    peer.expect(2, "queue.declare-ok")
    assert sorted(node.vhost.queues.by_name) == sorted(["next", taken])
    assert "s" not in node.vhost.exchanges.by_name
    other.expect(1, "queue.declare-ok")
    for queue in ("next", taken):
        other.call(1, "queue.delete", queue=queue)
    assert definition_bytes(node) == before


def test_what_is_prepared_is_booked_and_limited(node: Node, peer: Peer) -> None:
    before = definition_bytes(node)
    node.core.accounts.definition_bytes_max = before + 300_000
    peer.send(ask())
    assert peer.expect(1, "channel.close").code == 406
    assert definition_bytes(node) == before
    assert parts(node) == (0, 0)


def test_its_definitions_are_one_record_of_a_limited_size(node: Node, peer: Peer) -> None:
    """Arguments of 16 kB fit in a few partitions, and not in a thousand."""
    before = definition_bytes(node)
    long = {f"x-note-{number}": "n" * 250 for number in range(64)}
    few = SUPER_STREAM_BYTES_MAX // 20_000
    peer.send(ask(2 * few, **long))
    assert peer.expect(1, "channel.close").code == 406
    assert definition_bytes(node) == before
    other = node.connect()
    other.send(ask(few, **long))
    node.sync()
    other.expect(1, "queue.declare-ok")
    assert parts(node) == (few, few)


def test_it_ends_when_its_connection_is_lost(node: Node, peer: Peer) -> None:
    peer.receive(ask())
    peer.lose()
    node.sync()
    assert parts(node) == (MOST, MOST)


def test_it_ends_with_its_vhost(node: Node) -> None:
    node.broker.add_vhost("gone")
    node.broker.users.set_permission("guest", "gone", ".*", ".*", ".*")
    peer = node.connect_as("guest", vhost="gone")
    before = int(node.broker.vhosts["gone"].account.bytes)
    peer.receive(ask())
    node.settle()
    vhost = node.broker.vhosts["gone"]
    assert vhost.account.bytes > before
    node.broker.delete_vhost("gone")
    node.sync()
    assert not vhost.queues.by_name
    assert node.rests()
    assert "gone" not in Node(RecordingDisk(node.image())).broker.vhosts


def test_the_policies_count_for_each_partition(node: Node, peer: Peer) -> None:
    node.vhost.policies.set(make_policy("all", ".*", {"max-age": "1h"}))
    peer.send(ask())
    node.sync()
    peer.expect(1, "queue.declare-ok")
    queues = node.vhost.queues.by_name.values()
    assert {queue.policy is not None for queue in queues} == {True}


# -- reading ---------------------------------------------------------------------------------------

#: What a consumer may ask for at most, in arguments of a frame.
FILTER = {"x-stream-filter": [f"{number}" for number in range(STREAM_FILTER_VALUES_MAX)]}


def read(name: str = "c", **arguments: Any) -> bytes:
    """A consumer of the whole super stream `s`, from its beginning."""
    arguments = {"x-stream-offset": "first"} | arguments
    return method(
        1, "basic.consume", queue="s", consumer_tag=name, arguments=arguments, no_wait=True
    )


@pytest.fixture
def reader(node: Node, peer: Peer) -> Peer:
    """A client that may consume; the super stream has all its partitions."""
    peer.send(ask())
    node.sync()
    peer.expect(1, "queue.declare-ok")
    peer.call(1, "basic.qos", prefetch_count=1)
    return peer


@pytest.mark.parametrize("name", ["", "named"])
def test_the_parts_of_a_consumer_share_its_filter(node: Node, reader: Peer, name: str) -> None:
    more: dict[str, Any] = FILTER | {f"x{number}": number for number in range(1000)}
    if name:
        more["x-stream-consumer"] = name
    reader.send(read(**more))
    filters: set[object] = set()
    for number in (0, 1, MOST - 1):
        stream = node.stream(f"s-{number}")
        assert stream.consumers[0].arguments == {"x-stream-offset": "first"} | more
        if name:
            group = stream.offsets.groups[name]
            assert isinstance(group, StreamGroup)
            filters.update(group.filters.values())
        else:
            filters.update(reader.wanted for reader in stream.readers.values())
    assert len(filters) == 1
    assert None not in filters


@pytest.mark.parametrize("name", ["", "named"])
def test_each_partition_has_the_filter_of_the_whole(node: Node, name: str) -> None:
    peer = node.connect()
    peer.send(ask(3))
    node.sync()
    peer.expect(1, "queue.declare-ok")
    for key in range(30):
        headers = {"x-stream-filter-value": "wanted" if key % 3 else "other"}
        peer.send(publish(1, "s", f"{key}", b"%d" % key, headers=headers))
    node.sync()
    peer.call(1, "basic.qos", prefetch_count=100)
    peer.take()
    more = {"x-stream-consumer": name} if name else {}
    peer.send(read(**{"x-stream-filter": "wanted"}, **more))
    node.sync()
    assert sorted(map(int, peer.bodies())) == [key for key in range(30) if key % 3]


def test_what_the_parts_of_a_consumer_hold_is_booked(node: Node, reader: Peer) -> None:
    tracemalloc.start()
    try:
        held, booked = tracemalloc.get_traced_memory()[0], node.core.accounts.total()
        for number in range(3):
            reader.send(read(f"c{number}", **FILTER))
        grown = tracemalloc.get_traced_memory()[0] - held
    finally:
        tracemalloc.stop()
    assert grown > 3 * MOST * 200
    assert 0.7 < (node.core.accounts.total() - booked) / grown < 2
    for number in range(3):
        reader.call(1, "basic.cancel", consumer_tag=f"c{number}")
    assert node.core.accounts.total() == booked


# -- rights to very many partitions ----------------------------------------------------------------

#: A super stream's name and a permission that matches it, and its partitions, at some cost.
LONG = "a" * 200
COSTLY = "^(a?a?a?a?a?a?a?a?a?a?)+(-[0-9]+)?$"
PARTS = 64


@pytest.fixture
def limited(node: Node, peer: Peer) -> Peer:
    """A client whose rights to the partitions of a super stream take long to check."""
    peer.send(ask(PARTS, LONG))
    node.sync()
    peer.expect(1, "queue.declare-ok")
    node.add_user("u", configure=COSTLY, write="", read=COSTLY)
    node.sync()
    client = node.connect_as("u")
    client.call(1, "basic.qos", prefetch_count=1)
    return client


def consume_all(tag: str = "c") -> bytes:
    return method(1, "basic.consume", queue=LONG, consumer_tag=tag)


def readers_of(node: Node) -> set[int]:
    return {len(node.stream(f"{LONG}-{number}").consumers) for number in range(PARTS)}


def test_the_rights_of_a_consumer_to_all_partitions_are_checked_in_turns(
    node: Node, limited: Peer
) -> None:
    limited.receive(consume_all() + method(1, "basic.cancel", consumer_tag="other"))
    assert readers_of(node) == {0}
    node.rest()
    assert readers_of(node) == {1}
    node.run()
    # What came after it waited for it.
    limited.flush()
    assert limited.names() == ["basic.consume-ok", "basic.cancel-ok"]
    limited.call(1, "basic.cancel", consumer_tag="c")
    assert readers_of(node) == {0}


def test_a_partition_that_may_not_be_read_closes_the_channel_of_a_consumer_of_all(
    node: Node, limited: Peer
) -> None:
    node.broker.users.set_permission(
        "u", "/", "", "", COSTLY.replace("[0-9]+", "([0-57-9]|.[0-9])")
    )
    node.run()
    limited.receive(consume_all() + method(2, "channel.open"))
    node.run()
    closed = limited.expect(1, "channel.close")
    assert (closed.code, closed.class_id, closed.method_id) == (403, 60, 20)
    limited.expect(2, "channel.open-ok")
    assert readers_of(node) == {0}


@pytest.mark.parametrize("read", ["^nothing$", f"^{LONG}-.*", f"^{LONG}(-[0-57-9].*)?$"])
def test_rights_that_go_while_they_are_checked_let_nobody_read(
    node: Node, limited: Peer, read: str
) -> None:
    """Those to what was checked already as well."""
    limited.receive(consume_all())
    for _ in range(5):
        node.settle()
    assert not node.rests()
    node.broker.users.set_permission("u", "/", "", "", read)
    node.run()
    assert limited.expect(1, "channel.close").code == 403
    assert readers_of(node) == {0}


def test_a_partition_that_came_while_the_rights_are_checked_is_checked_too(
    node: Node, peer: Peer, limited: Peer
) -> None:
    peer.call(1, "queue.delete", queue=f"{LONG}-6")
    node.broker.users.set_permission(
        "u", "/", "", "", COSTLY.replace("[0-9]+", "([0-57-9]|.[0-9])")
    )
    node.run()
    limited.receive(consume_all())
    assert not node.rests()
    peer.receive(ask(PARTS, LONG))
    node.sync()
    peer.expect(1, "queue.declare-ok")
    assert limited.expect(1, "channel.close").code == 403
    assert readers_of(node) == {0}


def test_a_super_stream_that_goes_while_the_rights_are_checked_has_no_consumer(
    node: Node, peer: Peer, limited: Peer
) -> None:
    limited.receive(consume_all())
    assert not node.rests()
    peer.call(1, "exchange.delete", exchange=LONG)
    assert limited.expect(1, "channel.close").code == 404
    assert readers_of(node) == {0}


def test_a_client_that_goes_while_its_rights_are_checked_reads_nothing(
    node: Node, limited: Peer
) -> None:
    limited.receive(consume_all())
    assert not node.rests()
    limited.lose()
    node.run()
    assert readers_of(node) == {0}


@pytest.mark.parametrize("stays", [True, False])
def test_a_change_of_permissions_looks_at_one_consumer_of_all_partitions_in_turns(
    node: Node, limited: Peer, stays: bool
) -> None:
    limited.send(consume_all())
    limited.expect(1, "basic.consume-ok")
    # Another pattern, or what was looked at would be known.
    pattern = COSTLY.replace("[0-9]+", "[0-9]*" if stays else "[0-57-9]?[0-9]")
    node.broker.users.set_permission("u", "/", "", "", pattern)
    assert not node.rests()
    node.run()
    limited.flush()
    assert limited.names() == ([] if stays else ["basic.cancel"])
    assert readers_of(node) == {1 if stays else 0}


def test_another_change_of_permissions_looks_at_all_partitions_again(
    node: Node, limited: Peer
) -> None:
    limited.send(consume_all())
    limited.expect(1, "basic.consume-ok")
    users = node.broker.users
    users.set_permission("u", "/", "", "", COSTLY.replace("[0-9]+", "[0-9]*"))
    assert not node.rests()
    # The partition that the check came to is allowed by this one, and the first is not.
    users.set_permission("u", "/", "", "", f"^{LONG}(-[1-9].*)?$")
    node.run()
    assert readers_of(node) == {0}


# -- deleting --------------------------------------------------------------------------------------


def delete(name: str = "s", **values: Any) -> bytes:
    return method(1, "queue.delete", queue=name, **values)


def made(node: Node, peer: Peer, count: int) -> None:
    """Declare `s` with so many partitions."""
    peer.send(ask(count))
    node.sync()
    peer.expect(1, "queue.declare-ok")


def test_rights_that_go_while_they_are_checked_delete_nothing(node: Node, limited: Peer) -> None:
    limited.receive(delete(LONG))
    assert not node.rests()
    node.broker.users.set_permission("u", "/", f"^{LONG}-.*", "", "")
    node.run()
    closed = limited.expect(1, "channel.close")
    assert (closed.code, closed.class_id, closed.method_id) == (403, 50, 40)
    assert len(node.vhost.queues.by_name) == PARTS


@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_what_a_delete_depends_on_counts_when_it_is_done(
    node: Node, peer: Peer, limited: Peer, flag: str
) -> None:
    # What is published is seen once it is synced.
    peer.receive(publish(1, "", f"{LONG}-6", b"m") if flag == "if_empty" else b"")
    if flag == "if_empty":
        assert node.begin_sync()
        node.write()
    limited.receive(delete(LONG, **{flag: True}))
    assert not node.rests()
    if flag == "if_empty":
        node.end_sync()
    else:
        peer.receive(method(1, "basic.qos", prefetch_count=1))
        peer.receive(method(1, "basic.consume", queue=f"{LONG}-6", consumer_tag="c"))
    node.sync()
    assert limited.expect(1, "channel.close").code == 406
    assert len(node.vhost.queues.by_name) == PARTS


def test_a_delete_that_another_was_faster_with_is_answered(
    node: Node, peer: Peer, limited: Peer
) -> None:
    limited.receive(delete(LONG))
    assert not node.rests()
    peer.call(1, "queue.delete", queue=LONG)
    node.sync()
    assert limited.expect(1, "queue.delete-ok").message_count == 0


CHOOSING = {"x-consistent-hash": "1", "x-modulus-hash": "k", "x-random": "k"}


@pytest.mark.parametrize("kind", CHOOSING)
def test_very_many_bindings_that_choose_among_partitions_go_in_turns_before(
    node: Node, peer: Peer, kind: str
) -> None:
    """Their messages go to what is left, and a crash on the way leaves the super stream whole."""
    count, sources = 40, 40
    made(node, peer, count)
    peer.declare("other")
    for source in range(sources):
        peer.call(1, "exchange.declare", exchange=f"x{source}", type=kind, durable=True)
        for queue in ["other", *[f"s-{number}" for number in range(count)]]:
            bind = {"exchange": f"x{source}", "routing_key": CHOOSING[kind], "no_wait": True}
            peer.send(method(1, "queue.bind", queue=queue, **bind))
    node.sync()
    exchanges = node.vhost.exchanges
    booked = definition_bytes(node)
    other = node.connect()
    peer.receive(delete())
    assert parts(node) == (count + 1, count)
    other.receive(method(1, "queue.declare", queue="q", durable=True))
    node.begin_sync()
    node.write()
    again = Node(RecordingDisk(node.image()))
    assert parts(again) == (count + 2, count)
    node.end_sync()
    node.sync()
    peer.expect(1, "queue.delete-ok")
    assert parts(node)[1] == 0
    assert [len(exchanges.by_name[f"x{source}"].bindings) for source in range(sources)] == (
        [1] * sources
    )
    assert definition_bytes(node) < booked
    peer.send(publish(1, "x0", "key", b"m"))
    node.run()
    assert node.classic("other").ready_count() == 1
    again = Node(RecordingDisk(node.image()))
    assert sorted(again.vhost.queues.by_name) == ["other", "q"]


def test_a_stream_that_only_has_the_name_of_a_partition_keeps_its_bindings(
    node: Node, peer: Peer
) -> None:
    """And does not have the delete wait for them."""
    made(node, peer, 3)
    peer.call(1, "queue.delete", queue="s-1")
    peer.declare("s-1", arguments={"x-queue-type": "stream"})
    for source in range(600):
        name = f"x{source}"
        peer.send(method(1, "exchange.declare", exchange=name, type="x-random", no_wait=True))
        peer.send(method(1, "queue.bind", queue="s-1", exchange=name, no_wait=True))
    node.sync()
    peer.call(1, "queue.delete", queue="s")
    assert sorted(node.vhost.queues.by_name) == ["s-1"]
    assert node.vhost.exchanges.choices_of(node.stream("s-1")) == 600


def test_a_super_stream_whose_exchange_delays_is_deleted_by_one_record(
    node: Node, peer: Peer
) -> None:
    node.vhost.policies.set(make_policy("all", ".*", {"delayed-message": True}))
    made(node, peer, 3)
    exchange = node.vhost.exchanges.by_name["s"]
    assert exchange.delayed is not None
    peer.send(publish(1, "s", "key", b"m", headers={"x-delay": 100_000}))
    node.sync()
    peer.call(1, "queue.delete", queue="s")
    assert parts(node) == (0, 0)
    assert not Node(RecordingDisk(node.image())).vhost.queues.by_name


# -- listing and declaring again -------------------------------------------------------------------


def test_super_streams_are_listed_in_turns_by_their_partitions(node: Node, peer: Peer) -> None:
    names = [f"s{number}" for number in range(12)]
    for name in names:
        peer.send(ask(256, name))
        node.sync()
        peer.expect(1, "queue.declare-ok")
    app = web.Application()
    app[BROKER] = node.broker
    request = make_mocked_request("GET", "/?page=1", app=app, match_info={"vhost": "/"})

    async def run() -> int:
        asked = asyncio.create_task(super_streams(request))
        rounds = 0
        while not asked.done():
            rounds += 1
            await asyncio.sleep(0)
        asked.result()
        writer: Any = request._payload_writer  # noqa: SLF001 (the answer is written in pieces)
        written = b"".join(call.args[0] for call in writer.write.call_args_list)
        rows = json.loads(written)["items"]
        assert {(row["name"], len(row["partitions"])) for row in rows} == {
            (name, 256) for name in names
        }
        return rounds

    assert asyncio.run(run()) > 2


def test_the_rights_to_listed_super_streams_are_looked_at_in_turns(node: Node) -> None:
    node.add_user("u", configure="", write="", read=COSTLY)
    request = make_mocked_request("GET", "/")
    request[ACCESS] = node.connect_as("u").connection.access
    names = [f"{LONG}-{number}{end}" for number in range(20) for end in ("", "x")]

    async def run() -> int:
        may_read = permitted(node.core, names, lambda name: can_read(request, Name(name)))
        asked = asyncio.create_task(may_read)
        rounds = 0
        while not asked.done():
            rounds += 1
            await asyncio.sleep(0)
        assert asked.result() == names[::2]
        return rounds

    assert asyncio.run(run()) > 2
