"""A stream's id: drawn when it is declared, kept for ever, another one where offsets may repeat."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.definitions.imports import import_definitions
from leveret.broker.vhost.ids import StreamIds
from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.survey.salvage import Salvage, write_salvage
from leveret.store.survey.survey import Survey
from support.node.core import Node, Peer
from support.node.exporting import export_definitions
from support.wire.raw import Method
from support.wire.raw_codec import method, publish

STREAM = {"x-queue-type": "stream"}


def declared(node: Node, *names: str) -> Peer:
    peer = node.connect()
    for name in names:
        peer.declare(name, arguments=STREAM)
    node.sync()
    return peer


def put(peer: Peer, name: str, *bodies: bytes) -> None:
    """Publish to a stream and sync, each message in a group of its own."""
    for body in bodies:
        peer.send(publish(1, "", name, body))
        peer.node.sync()


def ids(node: Node, *names: str) -> list[str]:
    return [node.stream(name).stream_id for name in names]


def started(image: Image) -> Node:
    """Start a broker whose ids differ from those that one before has given."""
    return Node(RecordingDisk(image), stream_ids=LaterIds())


class LaterIds(StreamIds):
    """Ids that no other instance gives."""

    instances = 0

    def __init__(self) -> None:
        super().__init__()
        LaterIds.instances += 1
        self.given = 1000 * LaterIds.instances


# -- one stream, one id ----------------------------------------------------------------------------


def test_each_declare_of_a_name_makes_another_stream(node: Node) -> None:
    peer = declared(node, "a", "b")
    first = ids(node, "a", "b")
    peer.declare("a", arguments=STREAM)  # it is there: nothing is made
    assert ids(node, "a", "b") == first
    peer.call(1, "queue.delete", queue="a")
    peer.declare("a", arguments=STREAM)
    assert len({*first, *ids(node, "a", "b")}) == 3


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_it_stays_over_restarts_and_checkpoints(node: Node, checkpoints: int) -> None:
    peer = declared(node, "a", "b")
    put(peer, "a", b"1", b"2")
    for _ in range(checkpoints):
        node.take_checkpoint()
    first = ids(node, "a", "b")
    crashed = started(node.image())
    assert ids(crashed, "a", "b") == first
    stopped = started(crashed.stop())
    assert ids(stopped, "a", "b") == first


def test_a_stream_of_an_older_release_gets_one_once(node: Node) -> None:
    declared(node, "a")
    # Two snapshots, so that nothing else tells of the stream.
    node.stream("a").stream_id = ""
    node.take_checkpoint()
    node.take_checkpoint()
    again = started(node.stop())
    (first,) = ids(again, "a")
    assert first
    for _ in range(2):
        again.sync()
        again = started(again.image())
        assert ids(again, "a") == [first]
    again.take_checkpoint()
    again.take_checkpoint()
    assert ids(started(again.stop()), "a") == [first]


def test_definitions_carry_none(node: Node) -> None:
    """What is imported elsewhere is another stream, with other messages."""
    declared(node, "a")
    exported = export_definitions(node.broker)
    assert "stream_id" not in str(exported)
    other = Node(stream_ids=LaterIds())
    import_definitions(other.broker, exported, b"salt")
    assert ids(other, "a") != ids(node, "a")
    before = ids(other, "a")
    import_definitions(other.broker, exported, b"salt")
    assert ids(other, "a") == before


# -- damage ----------------------------------------------------------------------------------------


def harmed(image: Image, *bodies: bytes) -> Image:
    """Return an image whose journal has a bit turned in each of some bodies."""
    files = dict(image.files)
    for body in bodies:
        for path in [path for path in files if path.startswith("journal/")]:
            files[path] = files[path].replace(body, bytes([body[0] ^ 1]) + body[1:])
    assert not bodies or files != image.files
    return Image(files, set(image.folders))


def test_an_id_changes_where_the_last_messages_may_be_lost(node: Node) -> None:
    """Their offsets are given again; a stream that went on after the damage keeps its id."""
    peer = declared(node, "ends", "goes-on", "idle")
    put(peer, "ends", b"<first>")
    put(peer, "goes-on", b"<1>")
    put(peer, "ends", b"<second>")
    put(peer, "goes-on", b"<2>")
    before = ids(node, "ends", "goes-on", "idle")
    again = started(harmed(node.image(), b"<second>"))
    after = ids(again, "ends", "goes-on", "idle")
    assert again.stream("ends").next_offset == 1
    assert after[0] != before[0]
    assert after[1] == before[1]
    # Nobody knows what the lost record told, so that the idle one is as uncertain.
    assert after[2] != before[2]
    for _ in range(2):
        again = started(again.image())
        assert ids(again, "ends", "goes-on", "idle") == after


def test_damage_to_the_last_synced_record_changes_it(node: Node) -> None:
    """What follows is the start's own record only."""
    peer = declared(node, "s")
    put(peer, "s", b"<first>", b"<last>")
    (before,) = ids(node, "s")
    again = started(harmed(node.stop(), b"<last>"))
    assert ids(again, "s") != [before]


@pytest.mark.parametrize("part", [1, 2, 3])
def test_a_torn_end_that_was_never_synced_changes_nothing(node: Node, part: int) -> None:
    """Not at the start after the crash, and not at later ones, which find records after it."""
    peer = declared(node, "s")
    put(peer, "s", b"<first>")
    before = ids(node, "s")
    whole = node.image()
    put(peer, "s", b"<never synced>" * 100)
    torn = dict(node.image().files)
    for path, data in whole.files.items():
        if path.startswith("journal/"):
            cut = len(data.rstrip(b"\0")) + part * 300
            torn[path] = torn[path][:cut] + bytes(len(torn[path]) - cut)
    again = started(Image(torn, whole.folders))
    for _ in range(3):
        assert ids(again, "s") == before
        assert again.stream("s").next_offset == 1
        again.sync()
        again = started(again.image())


@pytest.mark.parametrize(("harm", "same"), [((), True), ((b"<second>",), False)])
def test_a_salvage_keeps_an_id_where_nothing_is_lost(
    node: Node, harm: tuple[bytes, ...], same: bool
) -> None:
    peer = declared(node, "s", "other")
    put(peer, "s", b"<first>", b"<second>")
    put(peer, "other", b"<1>")
    before = ids(node, "s", "other")
    survey = Survey(RecordingDisk(harmed(node.stop(), *harm)), keep=True)
    for _ in survey.run():
        pass
    saved = RecordingDisk()
    for _ in write_salvage(saved, Salvage(survey), bytes(range(16)), 0):
        pass
    after = ids(started(saved.image()), "s", "other")
    assert (after[0] == before[0]) is same
    assert after[1] == before[1]
    assert after[0]


# -- over AMQP -------------------------------------------------------------------------------------


def consumed(peer: Peer, name: str, **arguments: Any) -> Method:
    peer.call(1, "basic.qos", prefetch_count=10)
    given = {f"x-stream-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return peer.call(1, "basic.consume", queue=name, arguments=given)


def test_a_consumer_is_told_it_by_the_tag_that_the_broker_makes(node: Node) -> None:
    peer = declared(node, "s")
    tag = consumed(peer, "s", tell_id=True).consumer_tag
    assert tag.startswith("amq.ctag-")
    assert tag.rpartition(".")[2] == node.stream("s").stream_id
    assert not consumed(peer, "s").consumer_tag.endswith(node.stream("s").stream_id)
    named = peer.call(
        1, "basic.consume", queue="s", consumer_tag="mine", arguments={"x-stream-tell-id": True}
    )
    assert named.consumer_tag == "mine"


def test_a_consumer_of_another_stream_is_refused(node: Node) -> None:
    peer = declared(node, "s")
    stream_id = node.stream("s").stream_id
    consumed(peer, "s", id=stream_id)
    peer.send(method(1, "basic.consume", queue="s", arguments={"x-stream-id": "another"}))
    refused = peer.expect(1, "channel.close")
    assert refused.code == 406
    assert f"its id is '{stream_id}', not 'another'" in refused.text
