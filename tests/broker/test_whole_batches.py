"""Batches for one queue or stream, which takes them over at once: readers see all or nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leveret.broker.attributes.arguments import STAGING_EXCHANGE, STAGING_ROUTING_KEY
from leveret.broker.sinks.heir import QUEUES_GIVEN_MAX
from leveret.broker.stream.chunks import next_part
from leveret.chunk import Chunk
from leveret.store.disks.recording import RecordingDisk
from leveret.store.segments.segments import placed_chunk, read_chunk_bytes
from leveret.store.survey.salvage import Salvage, write_salvage
from leveret.store.survey.survey import Survey
from support.node.core import UUID, Node, Peer
from support.node.staged import (
    bodies,
    checkpointed,
    commit,
    killed,
    packed,
    stage_packed,
    stopped,
)
from support.wire.raw_codec import method, publish

TYPES = ("classic", "quorum", "stream")

#: The arguments of staging queues whose messages all go to the queue `t`.
TO_T = {STAGING_EXCHANGE: "", STAGING_ROUTING_KEY: "t"}

#: Few messages are copied; of many the chunks change their owner.  Of the last, most arrive as one
#: publish for each queue, and the rest one by one.
FEW, MANY, PACKED = 5, 700, 600


def prepared(node: Node, kind: str, count: int, queues: int = 2, **arguments: Any) -> list[bytes]:
    """Declare the queue `t`, and stage messages for it in `a0`, `a1` …; return the bodies."""
    peer = node.connect()
    peer.declare("t", arguments={"x-queue-type": kind, **arguments})
    expected = []
    for number in range(queues):
        name = f"a{number}"
        told = {"x-staging-sink": "s", "x-staging-batch": 1, **TO_T}
        peer.declare(name, arguments=told)
        of_queue = [b"%d.%04d" % (number, at) + bytes(200) for at in range(count)]
        if count == PACKED:
            stage_packed(peer, name, packed(*of_queue[:-10]))
        alone = of_queue[-10:] if count == PACKED else of_queue
        peer.send(*[publish(1, "", name, body, delivery_mode=2) for body in alone])
        expected += of_queue
        node.sync()
    assert seen(node) == 0
    return expected


def committed(node: Node, queues: int = 2) -> Peer:
    """A connection that has sent the commit of these queues."""
    peer = node.connect()
    peer.call(1, "confirm.select")
    commit(peer, *[f"a{number}" for number in range(queues)])
    return peer


def seen(node: Node) -> int:
    """The messages of `t` that readers see."""
    return int(node.vhost.queues.by_name["t"].ready_count())


def moments(node: Node, peer: Peer) -> Iterator[None]:
    """Yield before and after each write of a batch, until its commit is confirmed."""
    for _ in range(50):
        if node.begin_sync():
            yield
            node.write()
            yield
            node.end_sync()
        else:
            node.run()
        yield
        if "basic.ack" in peer.names():
            return
    raise AssertionError("the commit is not confirmed")


def contents(node: Node) -> list[bytes]:
    """The bodies in `t`, in order, as consumers get them."""
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=10_000)
    reader.call(1, "basic.consume", queue="t", arguments={"x-stream-offset": "first"})
    node.sync()
    return reader.bodies()


# -- what readers see ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [FEW, MANY, PACKED])
@pytest.mark.parametrize("kind", TYPES)
def test_all_messages_of_a_batch_are_there_at_once(kind: str, count: int) -> None:
    node = Node()
    expected = prepared(node, kind, count)
    peer = committed(node)
    found = [seen(node) for _ in moments(node, peer)]
    assert set(found) == {0, len(expected)}
    assert contents(node) == expected
    assert node.staging.sinks.by_place["s", ""].released == len(expected)
    assert list(node.vhost.queues.by_name) == ["t"]
    # What follows comes behind it.
    peer.send(publish(1, "", "t", b"next", delivery_mode=2))
    node.sync()
    if kind == "stream":
        assert contents(node) == [*expected, b"next"]


@pytest.mark.parametrize("count", [FEW, PACKED])
@pytest.mark.parametrize("kind", TYPES)
def test_a_crash_at_any_moment_leaves_a_whole_batch_or_none(kind: str, count: int) -> None:
    node = Node()
    expected = prepared(node, kind, count)
    peer = committed(node)
    draw = random.Random(5).randrange
    for _ in moments(node, peer):
        for image in [node.image(), *node.crashed(draw)]:
            again = Node(RecordingDisk(image))
            before = seen(again)
            is_decided = ("s", "") in again.staging.sinks.by_place
            again.sync()
            assert {before, seen(again)} <= {0, len(expected)}
            assert contents(again) == (expected if is_decided else [])
    assert seen(killed(node)) == len(expected)


@pytest.mark.parametrize("order", ["102", "012"])
@pytest.mark.parametrize("kind", TYPES)
def test_a_small_batch_that_is_partly_on_disk_is_there_at_once(kind: str, order: str) -> None:
    node = Node()
    on_disk = prepared(node, kind, FEW, queues=1)
    node = checkpointed(node)
    in_memory = []
    for name in ("a1", "a2"):
        told = {"x-staging-sink": "s", "x-staging-batch": 1, **TO_T}
        peer = node.connect()
        peer.declare(name, arguments=told)
        peer.send(publish(1, "", name, name.encode(), delivery_mode=2))
        in_memory.append(name.encode())
    node.sync()
    peer = node.connect()
    peer.call(1, "confirm.select")
    commit(peer, *[f"a{number}" for number in order])
    found = [seen(node) for _ in moments(node, peer)]
    assert set(found) == {0, FEW + 2}
    parts = [on_disk, in_memory[:1], in_memory[1:]]
    assert contents(node) == [body for number in order for body in parts[int(number)]]


def survives(node: Node, expected: list[bytes], seed: int) -> None:
    """Check that `t` has these messages after a crash, whatever the crash leaves."""
    for image in [node.image(), *node.crashed(random.Random(seed).randrange)]:
        again = Node(RecordingDisk(image))
        assert again.report.damages == []
        again.sync()
        assert contents(again) == expected


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_a_commit_at_any_moment_of_a_checkpoint_loses_nothing(kind: str, is_written: bool) -> None:
    steps = 0
    while True:
        steps += 1
        node = Node()
        expected = prepared(node, kind, MANY)
        for _ in range(steps - 1):
            node.step_checkpoint()
        # The last work waits for the thread that does it.
        checkpoint = node.checkpoint
        work = checkpoint.step() if checkpoint is not None else None
        if is_written and work is not None:
            node.checkpoint_files.run(work)
        peer = committed(node)
        node.sync()
        if "basic.ack" in peer.names():
            assert contents(node) == expected
            survives(node, expected, steps)
        if work is not None and not is_written:
            node.checkpoint_files.run(work)
        node.take_checkpoint()
        node.tick(1000)
        node.sync()
        survives(node, expected, steps)
        if steps > 1 and work is None:
            return


@pytest.mark.parametrize("end", [killed, checkpointed, stopped])
@pytest.mark.parametrize("kind", TYPES)
def test_what_was_taken_over_outlives_the_broker(kind: str, end: Callable[[Node], Node]) -> None:
    node = Node()
    expected = prepared(node, kind, MANY)
    committed(node)
    node.sync()
    again = end(end(node))
    assert contents(again) == expected
    again = end(node)
    again.compact()
    assert contents(end(again)) == expected


def test_the_chunks_of_a_stream_are_those_that_were_staged() -> None:
    node = Node()
    prepared(node, "stream", MANY)
    peer = node.connect()
    peer.send(publish(1, "", "t", b"before", delivery_mode=2))
    committed(node)
    node.sync()
    stream = node.stream("t")
    taken = [block.ref for block in stream.blocks if block.ref is not None and block.ref.adopted]
    assert sum(int(ref.count) for ref in taken) == 2 * MANY
    offset = 0
    while (part := next_part(stream, offset)) is not None:
        data = part.data
        if part.ref is not None:
            data = placed_chunk(read_chunk_bytes(node.disk, part.ref), part.ref, stream.queue_id)
        chunk = Chunk(data)
        assert (chunk.owner, chunk.first, chunk.damaged()) == (stream.queue_id, part.first, [])
        assert [chunk.sequence(at) for at in range(chunk.count)] == list(
            range(int(part.first), int(part.end))
        )
        offset = int(part.end)
    assert offset == 2 * MANY + 1


@pytest.mark.parametrize("kind", TYPES)
def test_the_tools_know_what_was_taken_over(kind: str) -> None:
    node = Node()
    expected = prepared(node, kind, MANY)
    committed(node)
    node.sync()
    for image in (node.image(), checkpointed(node).image()):
        survey = Survey(RecordingDisk(image), keep=True)
        for _ in survey.run():
            pass
        assert (survey.damages, survey.lost) == ([], 0)
        saved = RecordingDisk()
        for _ in write_salvage(saved, Salvage(survey), UUID, 0):
            pass
        assert contents(Node(saved)) == expected


def test_consumers_ack_and_requeue_what_was_taken_over() -> None:
    node = Node()
    expected = prepared(node, "classic", MANY)
    committed(node)
    node.sync()
    reader = node.connect()
    for at in range(6):
        got = reader.call_get("t")
        assert got.body == expected[at]
        if at < 5:
            reader.send(method(1, "basic.ack", delivery_tag=got.delivery_tag))
        else:
            reader.send(method(1, "basic.nack", delivery_tag=got.delivery_tag, requeue=True))
    node.sync()
    assert contents(checkpointed(node)) == expected[5:]
    again = killed(node)
    assert contents(again) == expected[5:]
    again = killed(node)
    again.connect().call(1, "queue.purge", queue="t")
    again.sync()
    assert seen(killed(again)) == 0


@pytest.mark.parametrize("kind", TYPES)
def test_an_exchange_may_lead_to_the_queue(kind: str) -> None:
    node = Node()
    peer = node.connect()
    peer.declare("t", arguments={"x-queue-type": kind})
    peer.call(1, "queue.bind", queue="t", exchange="amq.topic", routing_key="k.#")
    told = {STAGING_EXCHANGE: "amq.topic", STAGING_ROUTING_KEY: "k.1"}
    peer.declare("a0", arguments={"x-staging-sink": "s", "x-staging-batch": 1, **told})
    peer.send(*[publish(1, "", "a0", b"%d" % at, delivery_mode=2) for at in range(MANY)])
    node.sync()
    committed(node, 1)
    node.sync()
    assert contents(node) == [b"%d" % at for at in range(MANY)]
    assert node.vhost.exchanges.by_name["amq.topic"].published_in == MANY


@pytest.mark.in_memory
def test_a_batch_is_moved_to_disk_queue_by_queue() -> None:
    node = Node()
    prepared(node, "classic", MANY, queues=3)
    committed(node, 3)
    group = node.journal.seal()
    assert group is not None
    node.files.write(group)
    node.core.syncs.synced(group.number)
    node.waiting("a0").dispatch(1)
    # A batch may have hundreds of queues, for which others do not wait.
    assert node.waiting("a2").stored.items == []


# -- what is released in parts ---------------------------------------------------------------------


def test_a_queue_with_rules_judges_each_message() -> None:
    node = Node()
    expected = prepared(node, "classic", 200, **{"x-max-length": 150})
    committed(node)
    node.sync()
    assert contents(node) == expected[-150:]


@pytest.mark.parametrize("end", [None, killed, checkpointed])
@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_messages_with_more_keys_go_to_all_their_queues(
    header: str, end: Callable[[Node], Node] | None
) -> None:
    node = Node()
    prepared(node, "stream", MANY, queues=1)
    peer = node.connect()
    peer.declare("u")
    properties: dict[str, Any] = {"delivery_mode": 2, "headers": {header: ["u"]}}
    peer.send(publish(1, "", "a0", b"both", **properties))
    node.sync()
    if end is not None:
        node = end(node)
    committed(node, 1)
    node.sync()
    assert seen(node) == MANY + 1
    assert bodies(node, "u") == [b"both"]


def test_a_batch_of_too_many_queues_is_whole_in_a_stream() -> None:
    node = Node()
    queues = QUEUES_GIVEN_MAX + 1
    expected = prepared(node, "stream", 1, queues=queues)
    peer = committed(node, queues)
    node.sync()
    assert peer.names() == ["basic.ack"]
    assert contents(node) == expected


def test_a_batch_without_its_queue_is_refused() -> None:
    node = Node()
    prepared(node, "classic", FEW)
    node.connect().call(1, "queue.delete", queue="t")
    peer = node.connect()
    peer.call(1, "confirm.select")
    commit(peer, "a0", "a1", mandatory=True)
    node.sync()
    returned, nack = peer.take()
    assert (returned.code, nack.name) == (406, "basic.nack")
    assert "routing key 't'" in returned.text


def test_a_user_stages_only_what_they_may_publish() -> None:
    node = Node()
    prepared(node, "classic", FEW)
    node.add_user("ann", configure=".*", write="^b$", read="")
    ann = node.connect_as("ann")
    told = {"x-staging-sink": "n", "x-staging-batch": 1, **TO_T}
    ann.declare("b", arguments=told)
    ann.send(publish(1, "", "b", b"m"))
    assert ann.expect(1, "channel.close").code == 403
