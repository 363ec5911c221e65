"""Commits of staged batches: what is refused, how they end, and transactions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.sinks.commit import COMMIT_KEY, read_command
from leveret.broker.sinks.release import STREAM_HELD_BACK_MS_MAX, Sink
from leveret.broker.stream.chunks import next_part
from leveret.broker.stream.stream import Stream
from leveret.errors import PreconditionFailed
from leveret.limits import (
    CLIENT_PUBLISHER_EXPIRY_MS,
    COMMIT_BYTES_MAX,
    RELEASES_PER_SINK_MAX,
    SINKS_PER_VHOST_MAX,
    STAGING_QUEUES_PER_COMMIT_MAX,
)
from leveret.names import SAVE_PREFIX, Name
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.node.staged import (
    bodies,
    checkpointed,
    claimed,
    commit,
    forget,
    killed,
    released,
    stage,
    stage_queue,
    start,
    stopped,
)
from support.wire.raw_codec import method, publish

# -- what is refused -------------------------------------------------------------------------------


def refusal(node: Node, peer: Peer, *queues: str, **more: Any) -> tuple[int, str]:
    """What a mandatory commit comes back with."""
    node.sync()
    peer.take()
    commit(peer, *queues, mandatory=True, **more)
    node.sync()
    returned, nack = peer.take()
    assert (returned.name, nack.name) == ("basic.return", "basic.nack")
    return returned.code, returned.text


def test_a_commit_of_queues_that_are_not_its_own_is_refused() -> None:
    node = Node()
    peer = start(node, "a")
    stage_queue(peer, "other", sink="t")
    stage_queue(peer, "later", batch=2)
    assert refusal(node, peer, "a", "none")[0] == 404
    for queue in ("q", "other", "later"):
        assert refusal(node, peer, "a", queue)[0] == 406
    assert refusal(node, peer, "a", unroutable="dead-letter:none")[0] == 404
    # Nothing of that changed anything.
    stage(peer, "a", b"1")
    assert released(peer, "a") == ["basic.ack"]
    assert bodies(node) == [b"1"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"batch": 1, "queues": []}',
        b'{"sink": "", "batch": 1, "queues": []}',
        b'{"sink": 1, "batch": 1, "queues": []}',
        b'{"sink": "s", "batch": -1, "queues": []}',
        b'{"sink": "s", "batch": true, "queues": []}',
        b'{"sink": "s", "batch": 9223372036854775808, "queues": []}',
        b'{"sink": "s", "batch": 1}',
        b'{"sink": "s", "batch": 1, "queues": "a"}',
        b'{"sink": "s", "batch": 1, "queues": [1]}',
        b'{"sink": "s", "batch": 1, "queues": ["a", "a"]}',
        b'{"sink": "s", "batch": 1, "queues": [], "unroutable": "keep"}',
        b'{"sink": "s", "batch": 1, "queues": [], "unroutable": "dead-letter:"}',
        b'{"sink": "s", "batch": 1, "queues": [], "more": 1}',
        b'{"sink": "' + b"s" * 256 + b'", "batch": 1, "queues": []}',
        b'{"sink": "\\ud800", "batch": 1, "queues": []}',
        b" " * (COMMIT_BYTES_MAX + 1),
    ],
)
def test_a_malformed_commit_is_refused(body: bytes) -> None:
    with pytest.raises(PreconditionFailed, match="invalid commit"):
        read_command(body)
    node = Node()
    peer = start(node)
    peer.send(publish(1, "", COMMIT_KEY, body))
    assert peer.names() == ["basic.nack"]
    peer.call(1, "queue.declare", queue="q", passive=True)
    plain = start(node, mode="")
    plain.send(publish(1, "", COMMIT_KEY, body))
    assert plain.expect(1, "channel.close").code == 406


def test_the_most_queues_and_one_more() -> None:
    names = [f"q{number}" for number in range(STAGING_QUEUES_PER_COMMIT_MAX)]
    body = {"sink": "s", "batch": 2**63 - 1, "queues": names}
    assert read_command(json.dumps(body).encode()).queues == names
    with pytest.raises(PreconditionFailed, match="queues"):
        read_command(json.dumps({**body, "queues": [*names, "one"]}).encode())


def test_a_commit_of_the_most_queues_survives() -> None:
    """Its decision is one record, which has to hold the numbers of all queues."""
    node = Node()
    peer = start(node)
    names = [f"q{number}" for number in range(STAGING_QUEUES_PER_COMMIT_MAX)]
    for name in names:
        arguments: dict[str, object] = {"x-staging-sink": "s", "x-staging-batch": 1}
        node.vhost.queues.declare(None, Name(name), QueueAttributes(True, arguments=arguments))
    node.sync()
    body = {"sink": "s", "batch": 1, "queues": names, "unroutable": "drop"}
    peer.send(publish(1, "", COMMIT_KEY, json.dumps(body).encode()))
    node.sync()
    assert peer.names() == ["basic.ack"]
    assert Node(RecordingDisk(node.image())).staging.sinks.by_place["s", ""].batch == 1


def test_sinks_and_waiting_batches_have_a_most() -> None:
    node = Node()
    peer = start(node)
    for number in range(SINKS_PER_VHOST_MAX):
        sink = Sink(f"s{number}", "")
        sink.batch, sink.time_ms = 1, node.clock.wall_ms()
        node.staging.restore(sink, [])
    assert refusal(node, peer, sink="one more")[1] == (
        "PRECONDITION_FAILED - vhost '/' has at most 4000 sinks: forget sinks that are not used "
        "any more (leveret ctl delete_sink)"
    )
    assert released(peer, sink="s5", batch=2) == ["basic.ack"]
    node.tick(int(node.core.publisher_expiry_ms) + 2000)
    assert node.staging.sinks.by_place == {}
    full = node.connect()
    full.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    for batch in range(RELEASES_PER_SINK_MAX + 1):
        stage_queue(peer, f"a{batch}", batch)
        stage(peer, f"a{batch}", b"m", key="full")
    for batch in range(RELEASES_PER_SINK_MAX):
        assert released(peer, f"a{batch}", batch=batch) == []
    last = RELEASES_PER_SINK_MAX
    other = start(node)
    assert "not released" in refusal(node, other, f"a{last}", batch=last)[1]


def test_who_may_not_write_there_may_not_stage_it() -> None:
    node = Node()
    start(node)
    node.add_user("ann", configure="^(a|b)$", write=r"^(amq\.default|a)$", read="")
    peer = node.connect_as("ann")
    stage_queue(peer, "a")
    stage(peer, "a", b"1", exchange="amq.topic")
    assert peer.expect(1, "channel.close").code == 403
    peer.send(method(1, "channel.close-ok"))
    peer.call(1, "channel.open")
    stage(peer, "a", b"1", exchange="none")
    assert peer.expect(1, "channel.close").code == 403
    peer.send(method(1, "channel.close-ok"))
    peer.call(1, "channel.open")
    stage(peer, "a", b"1")
    node.sync()
    commit(peer, "a", unroutable="dead-letter:amq.fanout")
    assert peer.expect(1, "channel.close").code == 403


def test_who_may_not_configure_a_queue_may_not_commit_it() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    node.add_user("ann", configure="", write=".*", read="")
    ann = node.connect_as("ann")
    commit(ann, "a")
    assert ann.expect(1, "channel.close").code == 403


def test_a_missing_exchange_is_told_when_it_is_staged() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1", exchange="none")
    assert peer.expect(1, "channel.close").code == 404


def test_nobody_consumes_from_a_staging_queue() -> None:
    node = Node()
    start(node, "a")
    for name, values in (("basic.get", {}), ("basic.consume", {"consumer_tag": "c"})):
        peer = node.connect()
        peer.send(method(1, name, queue="a", **values))
        assert peer.expect(1, "channel.close").code == 403


def test_no_other_way_leads_into_a_staging_queue() -> None:
    node = Node()
    peer = start(node, "a")
    binding = {"queue": "a", "exchange": "amq.fanout", "routing_key": ""}
    other = node.connect()
    other.send(method(1, "queue.bind", **binding))
    assert other.expect(1, "channel.close").code == 403
    # One that an earlier release took is there still.
    node.vhost.exchanges.restore_binding(
        node.vhost.exchanges.by_name["amq.fanout"], "a", True, "", {}
    )
    headers = {"x-staged-exchange": "", "x-staged-routing-key": "q"}
    peer.send(publish(1, "amq.fanout", "", b"m", headers=headers))
    assert peer.names() == ["basic.nack"]
    peer.declare("letters", arguments={"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 0})
    peer.send(publish(1, "", "letters", b"m", headers=headers))
    node.tick(10)
    queues = node.vhost.queues.by_name
    assert (queues["a"].ready_count(), queues["letters"].ready_count()) == (0, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-staging-sink": "s"},
        {"x-staging-batch": 1},
        {"x-staging-sink": "", "x-staging-batch": 1},
        {"x-staging-sink": "s" * 256, "x-staging-batch": 1},
        {"x-staging-sink": 5, "x-staging-batch": 1},
        {"x-staging-sink": "s", "x-staging-batch": -1},
        {"x-staging-sink": "s", "x-staging-batch": "1"},
        {"x-staging-sink": "s", "x-staging-batch": 1, "x-message-ttl": 1},
        {"x-staging-sink": "s", "x-staging-batch": 1, "x-max-length": 1},
        {"x-staging-sink": "s", "x-staging-batch": 1, "x-queue-type": "stream"},
        {"x-staging-sink": "s", "x-staging-batch": 1, "x-queue-type": "quorum"},
    ],
)
def test_what_no_staging_queue_can_be(arguments: dict[str, object]) -> None:
    peer = Node().connect()
    peer.send(method(1, "queue.declare", queue="a", durable=True, arguments=arguments))
    assert peer.expect(1, "channel.close").code == 406


@pytest.mark.parametrize("how", [{"durable": False}, {"exclusive": True}, {"auto_delete": True}])
def test_a_staging_queue_is_durable_and_shared(how: dict[str, bool]) -> None:
    peer = Node().connect()
    arguments = {"x-staging-sink": "s", "x-staging-batch": 1}
    peer.send(
        method(1, "queue.declare", queue="a", **{"durable": True, **how}, arguments=arguments)
    )
    assert peer.expect(1, "channel.close").code == 406


# -- ends ------------------------------------------------------------------------------------------


def test_an_abandoned_queue_expires_after_its_last_publish() -> None:
    node = Node()
    peer = start(node)
    stage_queue(peer, "a", expires_ms=1000)
    for _ in range(3):
        node.tick(900)
        stage(peer, "a", b"m")
    assert "a" in node.vhost.queues.by_name
    node.tick(1001)
    assert "a" not in node.vhost.queues.by_name
    assert node.core.memory.held_messages == 0


def held_back(node: Node) -> Peer:
    """A connection whose committed batch cannot go on."""
    peer = node.connect()
    peer.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    stage_queue(peer, "a", expires_ms=1000)
    peer.call(1, "confirm.select")
    stage(peer, "a", b"m", key="full")
    assert released(peer, "a") == []
    return peer


def test_a_committed_queue_does_not_go_before_its_messages() -> None:
    node = Node()
    peer = held_back(node)
    node.tick(5000)
    assert node.vhost.queues.by_name["a"].ready_count() == 1
    for name in ("queue.delete", "queue.purge"):
        peer = node.connect()
        peer.send(method(1, name, queue="a"))
        assert peer.expect(1, "channel.close").code == 406
    again = killed(node)
    again.tick(5000)
    assert again.vhost.queues.by_name["a"].ready_count() == 1
    other = again.connect()
    other.call(1, "queue.delete", queue="full")
    again.tick(1000)
    again.sync()
    assert set(again.vhost.queues.by_name) == set()


def test_a_vhost_goes_with_what_it_releases() -> None:
    node = Node()
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    peer = node.connect_as("guest", vhost="v")
    peer.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    stage_queue(peer, "a")
    peer.call(1, "confirm.select")
    stage(peer, "a", b"m", key="full")
    assert released(peer, "a") == []
    node.broker.delete_vhost("v")
    node.tick(5000)
    node.sync()
    assert node.core.memory.held_messages == 0
    assert "v" not in killed(node).broker.vhosts


def test_a_connection_that_goes_while_its_commit_is_looked_at_commits_nothing() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    commit(peer, "a")
    peer.lose()
    node.sync()
    assert not node.staging.sinks.has("s", "", 1)
    other = start(node)
    assert released(other, "a") == ["basic.ack"]
    assert bodies(node) == [b"1"]


def test_a_client_that_closes_behind_its_commit_has_committed() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    commit(peer, "a")
    peer.send(method(0, "connection.close", code=200))
    assert bodies(node) == [b"1"]


def test_two_commits_of_one_queue_at_once_are_one() -> None:
    node = Node()
    first, second = start(node, "a"), start(node)
    stage(first, "a", b"1")
    commit(first, "a")
    commit(second, "a", mandatory=True)
    node.sync()
    assert first.names()[-1] == "basic.ack"
    assert [got.name for got in second.take()] == ["basic.return", "basic.nack"]
    assert bodies(node) == [b"1"]


def test_an_idle_sink_is_forgotten_and_its_batches_begin_anew() -> None:
    node = Node()
    peer = start(node, "a")
    stage(peer, "a", b"1")
    assert released(peer, "a") == ["basic.ack"]
    node.tick(int(node.core.publisher_expiry_ms))
    assert node.staging.sinks.has("s", "", 1)
    node.tick(2)
    assert not node.staging.sinks.has("s", "", 1)
    stage_queue(peer, "a")
    stage(peer, "a", b"2")
    assert released(peer, "a") == ["basic.ack"]
    assert bodies(node) == [b"1", b"2"]


def test_the_sink_of_one_save_is_forgotten_after_an_hour() -> None:
    saved = f"{SAVE_PREFIX}0123456789abcdef"
    for restarts in (False, True):
        node = Node()
        peer = start(node)
        for sink in (saved, f"{saved}0"):
            assert released(peer, sink=sink) == ["basic.ack"]
        if restarts:
            node = Node(RecordingDisk(node.image()), clock=node.clock)
        node.tick(CLIENT_PUBLISHER_EXPIRY_MS)
        assert node.staging.sinks.has(saved, "", 1)
        node.tick(2)
        assert not node.staging.sinks.has(saved, "", 1)
        assert node.staging.sinks.has(f"{saved}0", "", 1)


def test_an_operator_may_have_a_sink_forgotten() -> None:
    node = Node()
    peer = held_back(node)
    with pytest.raises(PreconditionFailed):
        forget(node, "s")
    node.connect().call(1, "queue.delete", queue="full")
    node.tick(1000)
    node.sync()
    assert peer.names() == ["basic.ack"]
    assert forget(node, "s").over
    assert claimed(node.staging.sinks, "s") == []
    node.sync()
    assert killed(node).staging.sinks.by_place == {}


def test_a_commit_is_confirmed_when_its_batch_is_released() -> None:
    node = Node()
    peer = held_back(node)
    # What is published later on the channel waits too, and what was published before does not.
    peer.send(publish(1, "", "none", b"0"))
    again, gone = start(node), start(node)
    for other in (again, gone):
        other.send(publish(1, "", "none", b"0"))
        assert other.names() == ["basic.ack"]
        assert released(other, "a") == []
    gone.lose()
    node.connect().call(1, "queue.delete", queue="full")
    node.tick(1000)
    node.sync()
    for waiting, last in ((peer, 3), (again, 2)):
        (ack,) = waiting.take()
        assert (ack.name, ack.delivery_tag) == ("basic.ack", last)


def test_a_repeated_commit_is_confirmed_though_nothing_else_happens() -> None:
    node = Node()
    assert released(start(node, "a"), "a") == ["basic.ack"]
    peer = node.connect()
    stage_queue(peer, "again")
    peer.call(1, "confirm.select")
    gone = [f"gone{number}" for number in range(STAGING_QUEUES_PER_COMMIT_MAX - 1)]
    fields = {"sink": "s", "batch": 1, "queues": ["again", *gone]}
    peer.receive(publish(1, "", COMMIT_KEY, json.dumps(fields).encode()))
    while not node.rests():
        node.settle()
        # The deletion of the queue is synced while the commit looks for the others.
        if node.begin_sync():
            node.write()
            group, node.group = node.group, None
            assert group is not None
            node.core.syncs.synced(group.number)
    node.sync()
    assert "again" not in node.vhost.queues.by_name
    assert peer.names() == ["basic.ack"]


# -- what readers of a stream see ------------------------------------------------------------------


def in_stream(node: Node) -> tuple[int, int]:
    """The messages of the stream `t` that are there, and those that its readers see."""
    stream = node.vhost.queues.by_name["t"]
    assert isinstance(stream, Stream)
    return stream.next_offset, stream.ready_count()


def half_released(node: Node) -> Peer:
    """A connection whose batch is in the stream `t` but for its end, which waits for a queue."""
    peer = node.connect()
    peer.declare("t", arguments={"x-queue-type": "stream"})
    peer.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    stage_queue(peer, "a")
    peer.call(1, "confirm.select")
    peer.send(publish(1, "", "t", b"before", delivery_mode=2))
    stage(peer, "a", b"1", b"2", key="t")
    stage(peer, "a", b"m", key="full")
    stage(peer, "a", b"3", key="t")
    assert released(peer, "a") == []
    peer.send(publish(1, "", "t", b"after", delivery_mode=2))
    return peer


@pytest.mark.parametrize("how", [None, killed, checkpointed, stopped])
def test_readers_of_a_stream_see_a_whole_batch_or_nothing_of_it(
    how: Callable[[Node], Node] | None,
) -> None:
    node = Node()
    half_released(node)
    node.sync()
    assert in_stream(node) == (4, 1)
    if how is not None:
        node = how(node)
        assert in_stream(node) == (4, 1)
    stream = node.vhost.queues.by_name["t"]
    assert isinstance(stream, Stream)
    part = next_part(stream, 0)
    assert part is not None
    assert (part.first, part.end) == (0, 1)
    assert next_part(stream, part.end) is None
    node.connect().call(1, "queue.delete", queue="full")
    node.tick(1000)
    node.sync()
    assert in_stream(node) == (5, 5)
    # Nothing of it is left for the next start.
    assert in_stream(killed(node)) == (5, 5)


@pytest.mark.parametrize("how", [killed, checkpointed])
def test_a_full_queue_holds_back_no_stream_for_ever(how: Callable[[Node], Node]) -> None:
    node = Node()
    half_released(node)
    node.sync()
    node.tick(STREAM_HELD_BACK_MS_MAX - 1000)
    assert in_stream(node) == (4, 1)
    node.tick(1000)
    node.sync()
    assert in_stream(node) == (4, 4)
    node = how(node)
    assert in_stream(node) == (4, 4)
    node.connect().call(1, "queue.delete", queue="full")
    node.tick(1000)
    node.sync()
    assert in_stream(node) == (5, 5)


def test_a_full_disk_holds_back_no_stream_for_ever() -> None:
    node = Node()
    half_released(node)
    node.sync()
    node.core.disk_short = True
    node.tick(1000)
    node.tick(STREAM_HELD_BACK_MS_MAX)
    assert in_stream(node) == (4, 4)


def test_a_stream_may_be_deleted_while_a_batch_is_released_into_it() -> None:
    node = Node()
    half_released(node)
    node.connect().call(1, "queue.delete", queue="t")
    node.connect().call(1, "queue.delete", queue="full")
    node.tick(1000)
    node.sync()
    assert set(node.vhost.queues.by_name) == set()
    assert set(killed(node).vhost.queues.by_name) == set()


# -- transactions ----------------------------------------------------------------------------------


def test_a_commit_in_a_transaction_is_part_of_it() -> None:
    node = Node()
    peer = start(node, "a", mode="tx.select")
    stage(peer, "a", b"1")
    peer.call(1, "tx.commit")
    commit(peer, "a")
    peer.send(publish(1, "", "q", b"0", delivery_mode=2))
    node.sync()
    assert node.vhost.queues.by_name["q"].ready_count() == 0
    assert not node.staging.sinks.has("s", "", 1)
    peer.call(1, "tx.commit")
    assert bodies(node) == [b"0", b"1"]


def test_a_commit_that_is_rolled_back_changes_nothing() -> None:
    node = Node()
    peer = start(node, "a", mode="tx.select")
    stage(peer, "a", b"1")
    peer.call(1, "tx.commit")
    commit(peer, "a")
    node.sync()
    peer.call(1, "tx.rollback")
    assert not node.staging.sinks.has("s", "", 1)
    stage(peer, "a", b"2")
    peer.call(1, "tx.commit")
    commit(peer, "a")
    node.sync()
    peer.call(1, "tx.commit")
    assert bodies(node) == [b"1", b"2"]


def test_a_commit_of_what_is_staged_in_the_same_transaction_is_refused() -> None:
    node = Node()
    peer = start(node, "a", mode="tx.select")
    stage(peer, "a", b"1")
    commit(peer, "a")
    assert peer.expect(1, "channel.close").code == 406


def test_a_known_batch_is_known_in_a_transaction_too() -> None:
    node = Node()
    first = start(node, "a")
    stage(first, "a", b"1")
    node.sync()
    commit(first, "a")
    peer = start(node, mode="tx.select")
    commit(peer, "a")
    peer.send(method(1, "tx.commit"))
    assert peer.names() == []
    node.sync()
    assert peer.names() == ["tx.commit-ok"]
    assert bodies(node) == [b"1"]


def test_a_queue_that_goes_before_the_transaction_ends_fails_it() -> None:
    node = Node()
    peer = start(node, "a", mode="tx.select")
    commit(peer, "a")
    node.sync()
    node.connect().call(1, "queue.delete", queue="a")
    peer.send(method(1, "tx.commit"))
    node.sync()
    assert peer.expect(1, "channel.close").code == 406
    assert not node.staging.sinks.has("s", "", 1)
