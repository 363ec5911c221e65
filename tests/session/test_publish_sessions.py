"""Publish sessions: a client that lost its connection learns what the broker has of its publishes.

The clients here do what ours does (`leveret.wire.content.publish_marks`): they keep what is not
confirmed, ask on the next connection, and publish again what the broker did not take.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from leveret.broker.publishers.publish_sessions import (
    PUBLISH_SESSION_CHANNELS_MAX,
    PUBLISH_SESSION_GAPS_MAX,
    PUBLISH_SESSIONS_PER_USER_MAX,
)
from leveret.limits import FAN_OUT_COPIES, PUBLISH_SESSION_EXPIRY_MS
from leveret.store.disks.recording import Image, RecordingDisk, crash_states
from leveret.wire.content.publish_marks import RETURNED, PublishMarks, read_marks
from support.node.core import Node, Peer, all_waiting
from support.node.staged import commit, stage, stage_queue
from support.wire.raw_codec import PROTOCOL_HEADER, method, publish

SESSION = "0123456789abcdef" * 2
OTHER = "f" * 32


def dialled(node: Node, session: str = SESSION, user: str = "guest") -> Peer:
    """An open connection that names a publish session."""
    peer = node.dial()
    peer.session = session
    peer.login(user=user)
    return peer


def opened(peer: Peer, key: str, channel: int = 1) -> bytes:
    """Open a channel under a key, in confirm mode; return what the broker tells of the lost one."""
    marks: bytes = peer.call(channel, "channel.open", reserved1=key).reserved1
    peer.call(channel, "confirm.select")
    return marks


def marks_of(node: Node, key: str, session: str = SESSION, user: str = "guest") -> bytes:
    """What a new connection is told."""
    peer = dialled(node, session, user)
    return opened(peer, key)


def put(queue: str, body: bytes, channel: int = 1, *, mandatory: bool = False) -> bytes:
    """A persistent publish to a queue."""
    return publish(channel, "", queue, body, mandatory=mandatory, delivery_mode=2)


def bodies(node: Node, queue: str) -> list[bytes]:
    """What is in a queue."""
    return [item.message.body for item in all_waiting(node.classic(queue))]


def restarted(node: Node, image: Image) -> Node:
    """A broker on what was left."""
    return Node(RecordingDisk(image), clock=node.clock)


@pytest.fixture
def peer(node: Node) -> Peer:
    peer = dialled(node)
    opened(peer, "1")
    peer.declare("q")
    return peer


# -- what is told ----------------------------------------------------------------------------------


def test_a_client_that_comes_back_learns_how_far_it_came(node: Node, peer: Peer) -> None:
    peer.send(*[put("q", b"%d" % number) for number in range(5)])
    peer.lose()
    assert marks_of(node, "2:1") == b"5 0"
    assert bodies(node, "q") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_commit_is_not_told_before_its_batch_is_released(node: Node, peer: Peer) -> None:
    peer.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    stage_queue(peer, "staged")
    peer.send(put("q", b"before"))
    stage(peer, "staged", b"m", key="full")
    node.sync()
    commit(peer, "staged")
    node.sync()
    peer.lose()
    again = dialled(node)
    assert opened(again, "2:1") == b"2 0"
    # So the client sends it again, and waits for the same release.
    commit(again, "staged")
    node.sync()
    assert again.names() == []
    node.connect().call(1, "queue.delete", queue="full")
    node.tick(1000)
    node.sync()
    assert again.names() == ["basic.ack"]
    again.lose()
    assert marks_of(node, "3:2") == b"1 0"


def test_what_is_told_is_durable_before_it_is_told(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"m"))
    peer.lose()
    again = dialled(node)
    again.send(method(1, "channel.open", reserved1="2:1"))
    assert again.take() == []
    node.begin_sync()
    node.write()
    assert again.take() == []
    node.end_sync()
    assert again.expect(1, "channel.open-ok").reserved1 == b"1 0"


def test_what_is_being_written_is_waited_for_too(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"m"))
    node.begin_sync()
    peer.lose()
    again = dialled(node)
    again.send(method(1, "channel.open", reserved1="2:1"))
    assert again.take() == []
    node.write()
    node.end_sync()
    assert again.expect(1, "channel.open-ok").reserved1 == b"1 0"


def test_nothing_is_told_of_what_is_not_known(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"m"))
    peer.lose()
    assert marks_of(node, "7") == b""
    assert marks_of(node, "8:3") == b""


def test_a_channel_without_confirms_tells_nothing(node: Node) -> None:
    peer = dialled(node)
    peer.call(1, "channel.open", reserved1="1")
    peer.declare("q")
    peer.send(put("q", b"m"))
    peer.lose()
    assert marks_of(node, "2:1") == b""


def test_channels_are_told_apart(node: Node, peer: Peer) -> None:
    opened(peer, "2", channel=2)
    peer.send(put("q", b"a"), put("q", b"b", 2), put("q", b"c", 2))
    peer.lose()
    again = dialled(node)
    assert opened(again, "3:1") == b"1 0"
    assert opened(again, "4:2", channel=2) == b"2 0"


def test_a_lost_connection_that_is_still_there_ends_first_and_its_input_with_it(
    node: Node, peer: Peer
) -> None:
    whole = put("q", b"never whole")
    peer.send(put("q", b"m"), whole[:-3])
    again = dialled(node)
    assert peer.connection not in node.peers
    assert peer.connection.finished
    assert opened(again, "2:1") == b"1 0"
    peer.receive(whole[-3:] + put("q", b"late"))
    node.run()
    assert bodies(node, "q") == [b"m"]


def test_an_answer_that_is_lost_is_given_again(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"m"))
    peer.lose()
    for key in ("2:1", "3:1", "9:1"):
        again = dialled(node)
        assert opened(again, key) == b"1 0"
        again.lose()


def test_publishes_count_from_1_on_the_new_channel(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"a"), put("q", b"b"))
    peer.lose()
    again = dialled(node)
    assert opened(again, "2:1") == b"2 0"
    again.send(put("q", b"c"))
    again.lose()
    third = dialled(node)
    assert opened(third, "3:2") == b"1 0"
    third.lose()
    # What was before the channel that it goes by is done with.
    assert marks_of(node, "4:1") == b""


def test_refused_and_returned_publishes_are_told(node: Node, peer: Peer) -> None:
    peer.declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    peer.send(put("full", b"1"), put("full", b"2"), put("full", b"3"))
    peer.send(put("nowhere", b"4", mandatory=True), put("nowhere", b"5"), put("q", b"6"))
    peer.send(put("nowhere", b"7", mandatory=True))
    peer.lose()
    assert marks_of(node, "2:1") == b"7 0 n2-3 r4-4 r7-7"


def test_of_too_many_gaps_the_oldest_are_not_told(node: Node, peer: Peer) -> None:
    count = PUBLISH_SESSION_GAPS_MAX + 10
    pair = put("nowhere", b"", mandatory=True) + put("nowhere", b"")
    for _ in range(count):
        peer.send(pair)
        peer.take()
        node.tick()
    peer.lose()
    marks = read_marks(marks_of(node, "2:1"))
    assert marks is not None
    assert marks.through == 2 * count
    assert 0 < len(marks.gaps) <= PUBLISH_SESSION_GAPS_MAX
    assert marks.floor == marks.gaps[0][0] - 2
    assert marks.gaps == [
        (number, number, RETURNED) for number in range(marks.floor + 2, 2 * count, 2)
    ]


def test_an_answer_fits_its_frame(node: Node, peer: Peer) -> None:
    for _ in range(2000):
        peer.send(put("nowhere", b"", mandatory=True) + put("nowhere", b""))
    peer.lose()
    again = node.dial()
    again.session = SESSION
    again.login(frame_max=4096)
    told = opened(again, "2:1")
    marks = read_marks(told)
    assert 3000 < len(told) <= 4096 - 16
    assert marks is not None
    assert (marks.through, marks.floor) == (4000, marks.gaps[0][0] - 2)


def test_a_channel_that_the_broker_closed_is_told_until_its_client_knows(
    node: Node, peer: Peer
) -> None:
    peer.send(put("q", b"m"), publish(1, "no such exchange", "", b""))
    peer.lose()
    again = dialled(node)
    assert opened(again, "2:1") == b"1 0"
    again.send(put("q", b"n"), publish(1, "no such exchange", "", b""))
    again.send(method(1, "channel.close-ok"))
    again.lose()
    assert marks_of(node, "3:2") == b""


def test_a_channel_that_the_broker_closes_before_a_publish_may_be_replaced(
    node: Node, peer: Peer
) -> None:
    peer.send(put("q", b"m"))
    peer.lose()
    again = dialled(node)
    assert opened(again, "2:1") == b"1 0"
    again.send(method(1, "basic.consume", queue="not there"))
    assert again.names() == ["channel.close"]
    again.send(method(1, "channel.close-ok"))
    assert opened(again, "3:1") == b"1 0"


@pytest.mark.one_build
def test_a_publish_to_very_many_queues_goes_on_and_is_told_when_it_is_done(
    node: Node, peer: Peer
) -> None:
    peer.call(1, "exchange.declare", exchange="x", type="fanout")
    count = 2 * FAN_OUT_COPIES + 100
    for number in range(count):
        queue = f"q{number}"
        declared = method(1, "queue.declare", queue=queue, durable=True, no_wait=True)
        peer.send(declared, method(1, "queue.bind", queue=queue, exchange="x", no_wait=True))
    node.sync()
    node.run()
    peer.take()
    # No round goes by between the publish and the loss.
    peer.receive(publish(1, "x", "", b"m", delivery_mode=2))
    assert peer.connection.work is not None
    assert not peer.connection.work.over
    peer.connection.lost()
    again = node.dial()
    client = {"leveret-session": SESSION}
    again.connection.receive(
        PROTOCOL_HEADER
        + method(
            0, "connection.start-ok", client_properties=client, mechanism="PLAIN",
            response=b"\0guest\0guest", locale="en_US",
        )
        + method(0, "connection.tune-ok", channel_max=2047, frame_max=131_072)
        + method(0, "connection.open", vhost="/")
        + method(1, "channel.open", reserved1="2:1"),
        node.now(),
    )  # fmt: skip
    again.flush()
    assert again.names()[-1] == "connection.open-ok"
    node.sync()
    assert again.expect(1, "channel.open-ok").reserved1 == b"1 0"
    assert all(bodies(node, f"q{number}") == [b"m"] for number in (0, count - 1))


# -- what is forgotten -----------------------------------------------------------------------------


def test_a_connection_that_is_closed_is_forgotten(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"m"))
    node.sync()
    peer.take()
    peer.call(0, "connection.close", code=200)
    assert marks_of(node, "2:1") == b""
    node.sync()
    assert marks_of(restarted(node, node.image()), "2:1") == b""
    assert node.core.accounts.connection_bytes == sum(
        one.connection.account.bytes for one in node.peers.values()
    ) + _kept(node)


def _kept(node: Node) -> int:
    """What the publish sessions have booked."""
    return int(node.broker.publish_sessions.held_bytes)


def test_a_connection_that_closes_by_a_failure_may_come_back(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"m"))
    node.sync()
    peer.take()
    peer.call(0, "connection.close", code=506)
    assert marks_of(node, "2:1") == b"1 0"


def test_a_channel_that_is_closed_is_forgotten_with_what_it_was_before(
    node: Node, peer: Peer
) -> None:
    peer.send(put("q", b"m"))
    peer.lose()
    again = dialled(node)
    assert opened(again, "2:1") == b"1 0"
    again.send(put("q", b"n"))
    node.sync()
    again.take()
    again.call(1, "channel.close", code=200)
    again.lose()
    assert _kept(node) == 0
    assert marks_of(node, "3:2") == b""
    assert marks_of(node, "4:1") == b""


def test_a_session_is_forgotten_in_time(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"m"))
    peer.lose()
    node.tick(PUBLISH_SESSION_EXPIRY_MS - 1)
    again = dialled(node)
    assert opened(again, "2:1") == b"1 0"
    node.tick(PUBLISH_SESSION_EXPIRY_MS)
    again.lose()
    node.tick(PUBLISH_SESSION_EXPIRY_MS - 1)
    assert _kept(node) > 0
    node.tick(1)
    assert _kept(node) == 0
    assert marks_of(node, "3:1") == b""
    node.sync()
    assert _kept(restarted(node, node.image())) == 0


def test_after_a_start_the_time_begins_anew(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"m"))
    node.sync()
    after = restarted(node, node.image())
    after.tick(PUBLISH_SESSION_EXPIRY_MS - 1)
    assert _kept(after) > 0
    after.tick(1)
    assert _kept(after) == 0


@pytest.mark.one_build
def test_a_user_has_so_many_and_the_one_lost_first_goes(node: Node) -> None:
    for number in range(PUBLISH_SESSIONS_PER_USER_MAX):
        peer = dialled(node, f"{number:032x}")
        opened(peer, "1")
        peer.send(publish(1, "", "nowhere", b""))
        peer.lose()
    peer = dialled(node, f"{PUBLISH_SESSIONS_PER_USER_MAX:032x}")
    opened(peer, "1")
    assert marks_of(node, "2:1", f"{1:032x}") == b"1 0"
    assert marks_of(node, "2:1", f"{0:032x}") == b""


@pytest.mark.one_build
def test_a_session_has_so_many_channels(node: Node, peer: Peer) -> None:
    for key in range(2, PUBLISH_SESSION_CHANNELS_MAX + 2):
        opened(peer, str(key), channel=2)
        peer.send(publish(2, "", "nowhere", b""), publish(2, "no such exchange", "", b""))
        peer.take()
        # The client never answers the close, and so keeps the key; the number is used again.
        if key < PUBLISH_SESSION_CHANNELS_MAX + 1:
            peer.connection.channels.by_number.pop(2)
    session = peer.connection.publish_session
    assert session is not None
    assert len(session.channels) == PUBLISH_SESSION_CHANNELS_MAX


def test_sessions_without_a_connection_go_before_connections_when_memory_is_short(
    node: Node, peer: Peer
) -> None:
    peer.send(put("q", b"m"))
    peer.lose()
    other = node.connect()
    node.core.accounts.connection_bytes_max = 1
    node.tick()
    assert _kept(node) == 0
    assert other.connection in node.peers


# -- others ----------------------------------------------------------------------------------------


def test_another_user_learns_nothing_and_ends_nobody(node: Node, peer: Peer) -> None:
    node.add_user("eve", configure=".*", write=".*", read=".*")
    peer.send(put("q", b"m"))
    assert marks_of(node, "2:1", SESSION, "eve") == b""
    assert peer.connection in node.peers
    peer.lose()
    assert marks_of(node, "3:1", SESSION, "eve") == b""
    assert marks_of(node, "4:1", OTHER) == b""
    assert marks_of(node, "4:1") == b"1 0"


def test_nobody_is_shown_a_session(node: Node, peer: Peer) -> None:
    assert peer.connection.handshake.client_properties.keys() == {"product", "capabilities"}


@pytest.mark.parametrize(
    "session", ["", "x" * 32, "0" * 31, "0" * 33, "0" * 2048, " 1" * 16, "é" * 32, 17, True, {}]
)
def test_a_session_that_is_none_is_passed_over(node: Node, session: object) -> None:
    peer = node.dial()
    peer.session = session  # type: ignore[assignment]
    peer.login()
    assert opened(peer, "1") == b""
    assert peer.connection.publish_session is None


@pytest.mark.parametrize(
    "key", ["", "x", "-1", "0", ":", "1:", ":1", "9" * 19, "9" * 200, "1:1", "²", "1 ", "2:9999"]
)
def test_a_key_that_is_none_is_passed_over(node: Node, peer: Peer, key: str) -> None:
    peer.send(put("q", b"m"))
    peer.lose()
    assert marks_of(node, key) == b""
    assert bodies(node, "q") == [b"m"]


def test_a_key_that_was_used_counts_no_more(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"a"), put("q", b"b"))
    peer.lose()
    again = dialled(node)
    assert opened(again, "1:1") == b""
    again.send(put("q", b"c"))
    again.lose()
    assert marks_of(node, "2:1") == b"2 0"


def test_a_live_channel_is_not_told_about(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"m"))
    assert opened(peer, "2:1", channel=2) == b""


def test_who_names_no_session_gets_no_answer(node: Node) -> None:
    peer = node.dial()
    peer.login()
    assert opened(peer, "1") == b""
    peer.lose()
    assert _kept(node) == 0


# -- stops and crashes -----------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_crash_keeps_what_was_synced(node: Node, peer: Peer, checkpoint: bool) -> None:
    peer.declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    peer.send(put("full", b"1"), put("full", b"2"), put("nowhere", b"3", mandatory=True))
    node.sync()
    if checkpoint:
        node.take_checkpoint()
    peer.send(put("q", b"4"))
    node.sync()
    peer.send(put("q", b"5"))
    after = restarted(node, node.crashed(lambda _: 0)[0])
    assert marks_of(after, "2:1") == b"4 0 n2-2 r3-3"
    assert bodies(after, "q") == [b"4"]


def test_a_checkpoint_carries_them_when_the_journal_is_gone(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"1"), put("nowhere", b"2", mandatory=True))
    peer.lose()
    for _ in range(3):
        node.take_checkpoint()
    after = restarted(node, node.image())
    assert marks_of(after, "2:1") == b"2 0 r2-2"


def test_a_clean_stop_keeps_what_was_not_recorded_too(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"1"))
    node.sync()
    peer.send(publish(1, "", "q", b"transient"), publish(1, "", "nowhere", b""))
    image = node.stop()
    after = restarted(node, image)
    assert after.report.clean_stop
    assert marks_of(after, "2:1") == b"3 0"


def test_a_stop_is_clean_with_marks_of_the_last_group(node: Node, peer: Peer) -> None:
    """Their records come before the one that says that the stop was clean."""
    peer.send(put("q", b"1"))
    node.broker.journal_stop(node.clock.wall_ms())
    node.sync()
    assert restarted(node, node.image()).report.clean_stop


def damaged(image: Image, needle: bytes) -> Image:
    """What is on the disk, with one bit of a body in the journal changed."""
    for path, data in image.files.items():
        at = data.find(needle)
        if path.startswith("journal/") and at >= 0:
            image.files[path] = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            return image
    raise AssertionError("it is not there")


def test_a_group_that_is_not_whole_tells_nothing(node: Node, peer: Peer) -> None:
    peer.send(put("q", b"first of two"), put("q", b"second of two"))
    node.sync()
    after = restarted(node, damaged(node.image(), b"first of two"))
    assert bodies(after, "q") == [b"second of two"]
    assert marks_of(after, "2:1") == b""


def test_after_a_group_that_is_not_whole_the_rest_is_told(node: Node, peer: Peer) -> None:
    for body in (b"first of three", b"second of three", b"third of three"):
        peer.send(put("q", body))
        node.sync()
    after = restarted(node, damaged(node.image(), b"second of three"))
    assert bodies(after, "q") == [b"first of three", b"third of three"]
    assert marks_of(after, "2:1") == b"3 2"


@dataclass
class Client:
    """What our client remembers: what it has published, and what is not confirmed."""

    node: Node
    peer: Peer = field(init=False)
    key: int = 0
    counted: int = 0
    serial: int = 0
    #: By the number on the channel that counts: what is not confirmed.
    pending: dict[int, bytes] = field(default_factory=dict)
    confirmed: set[bytes] = field(default_factory=set)
    nacked: set[bytes] = field(default_factory=set)
    sent: int = 0

    def copy(self, node: Node) -> Client:
        """What it knows now, with another broker."""
        return Client(
            node, self.key, self.counted, self.serial, dict(self.pending), set(self.confirmed),
            set(self.nacked), self.sent,
        )  # fmt: skip

    def connect(self) -> None:
        """Connect, ask what became of the unconfirmed, and publish the others again."""
        self.peer = dialled(self.node)
        self.key += 1
        asked = f"{self.key}:{self.counted}" if self.counted else str(self.key)
        marks = read_marks(opened(self.peer, asked)) or PublishMarks(0, 0, [])
        again: list[bytes] = []
        for number, body in self.pending.items():
            gaps = [kind for first, last, kind in marks.gaps if first <= number <= last]
            if marks.floor < number <= marks.through and RETURNED not in gaps:
                (self.nacked if gaps else self.confirmed).add(body)
            else:
                again.append(body)
        self.counted, self.sent, self.pending = self.key, 0, {}
        for body in again:
            self.publish(body)

    def publish(self, body: bytes = b"") -> None:
        """Publish a message, a new one if none is given."""
        if not body:
            self.serial += 1
            body = b"%d" % self.serial
        self.sent += 1
        self.pending[self.sent] = body
        # Some go nowhere, and come back; some go where few have room.
        queue = {0: "nowhere", 1: "full"}.get(int(body) % 4, "q")
        self.peer.send(put(queue, body, mandatory=True))

    def hear(self) -> None:
        """Take the confirms that came."""
        for got in self.peer.take():
            if got.name in {"basic.ack", "basic.nack"}:
                tags = [got.delivery_tag]
                if got.multiple:
                    tags = [number for number in self.pending if number <= got.delivery_tag]
                for tag in tags:
                    known = self.confirmed if got.name == "basic.ack" else self.nacked
                    known.add(self.pending.pop(tag))


@pytest.mark.parametrize("seed", range(4))
def test_after_any_crash_each_message_is_there_once(seed: int) -> None:
    """The newest group may be torn: what of it was kept may come twice, and nothing is lost."""
    chance = random.Random(seed)
    node = Node()
    client = Client(node)
    setup = node.connect()
    setup.declare("q")
    setup.declare("full", arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
    client.connect()
    #: What the client knew at each length of the disk's trace.
    known = [(node.trace_length(), client.copy(node))]
    for _ in range(60):
        step = chance.choice([client.publish] * 4 + [node.sync, node.sync, client.hear, _lose])
        if step is _lose:
            client.hear()
            client.peer.lose()
            client.connect()
        else:
            step()
        client.hear()
        known.append((node.trace_length(), client.copy(node)))
        if chance.randrange(25) == 0:
            node.take_checkpoint()
            client.hear()
            known.append((node.trace_length(), client.copy(node)))
    assert node.recording is not None
    for state in crash_states(node.recording, chance.randrange, 3, since=known[0][0]):
        latest = [one for at, one in known if at <= state.operations][-1]
        after = Node(RecordingDisk(state.image), clock=node.clock)
        durable = stored_in(after)
        again = latest.copy(after)
        again.connect()
        after.sync()
        again.hear()
        assert not again.pending
        stored = stored_in(after)
        lost = {body for body in again.confirmed if stored[body] == 0 and int(body) % 4}
        twice = {body for body, count in stored.items() if count > 1}
        assert lost == set(), state.what
        assert all(durable[body] == 1 for body in twice)
        if not state.what.startswith("drawn"):
            assert twice == set(), state.what


def stored_in(node: Node) -> Counter[bytes]:
    """How often each message is there."""
    return Counter(bodies(node, "q") + bodies(node, "full"))


def _lose() -> None:
    """Stands for the loss of the connection."""
