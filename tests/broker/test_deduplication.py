"""Message deduplication: what is dropped, for how long it is known, and after which ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.policies.policy import make_policy
from leveret.broker.queue.deduplication import Deduplication, key_of, read_keys
from leveret.message import Address, Message
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.wire.raw_codec import Typed, method, properties, publish

HEADER = "x-deduplication-header"
SIZE = "x-deduplication-window-size"
AGE = "x-deduplication-window-age"


def declare(node: Node, **arguments: object) -> Peer:
    """A client that declared `q` with these arguments beside the header `id`."""
    peer = node.connect()
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    peer.declare("q", arguments={HEADER: "id"} | named)
    return peer


def put(peer: Peer, *values: object, persistent: bool = True) -> None:
    """Publish a message for each value of the header `id`, the value as its body too."""
    mode = 2 if persistent else 1
    for value in values:
        body = str(value).encode()
        peer.send(publish(1, "", "q", body, delivery_mode=mode, headers={"id": value}))


def bodies(peer: Peer) -> list[bytes]:
    """Take everything that waits."""
    found = []
    while peer.node.vhost.queues.by_name["q"].ready_count():
        found.append(peer.call_get("q", no_ack=True).body)
    return found


def message(**props: Any) -> Message:
    """A message of these properties."""
    return Message(Address(b"", b"q"), properties(**props), b"", 0, False)


# -- what is the same ------------------------------------------------------------------------------


def test_a_message_of_a_known_value_is_dropped_and_counted() -> None:
    node = Node()
    peer = declare(node)
    put(peer, "a", "b", "a", "a", "c", "b")
    assert bodies(peer) == [b"a", b"b", b"c"]
    queue = node.classic("q")
    assert (queue.target.published, queue.target.deduplicated) == (3, 3)
    # Also when the first one is gone.
    put(peer, "a")
    assert bodies(peer) == []


def test_without_the_header_every_message_is_taken() -> None:
    node = Node()
    peer = declare(node)
    for headers in ({"other": 1}, {}):
        peer.send(publish(1, "", "q", b"m", headers=headers) * 2)
    peer.send(publish(1, "", "q", b"m") * 2)
    assert len(bodies(peer)) == 6


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", 1), (1, 1.5), (1, True), ("x", b"y"), ("", None), ({"a": 1}, {"a": 2}), ([1], [2])],
)
def test_values_of_other_kinds_are_other_keys(one: object, other: object) -> None:
    keys = {key_of(message(headers={"id": value}), "id") for value in (one, other)}
    assert len(keys) == 2
    assert b"" not in keys


@pytest.mark.parametrize("value", ["s", b"s", 7, 1.5, None, True, {"a": [1]}, [1, "x"]])
def test_a_value_of_any_type_is_known_again(value: object) -> None:
    node = Node()
    peer = declare(node)
    put(peer, value, value)
    assert len(bodies(peer)) == 1


def test_integers_are_the_same_at_any_width() -> None:
    small, large = ({"id": Typed(kind, 7)} for kind in "bl")
    assert key_of(message(headers=small), "id") == key_of(message(headers=large), "id")


def test_a_long_value_costs_no_more_than_its_hash() -> None:
    long = "x" * 100_000
    first, second = (key_of(message(headers={"id": long + end}), "id") for end in "ab")
    assert first != second
    assert len(first) == len(second) == 32


# -- for how long ----------------------------------------------------------------------------------


def test_the_window_has_a_size() -> None:
    node = Node()
    peer = declare(node, x_deduplication_window_size=3)
    put(peer, "a", "b", "c", "a", "d", "a", "b", "d")
    assert bodies(peer) == [b"a", b"b", b"c", b"d", b"a", b"b"]


def test_by_default_a_thousand_are_known() -> None:
    node = Node()
    peer = declare(node)
    put(peer, *range(1000), 0, 1000, 0)
    assert bodies(peer)[-2:] == [b"1000", b"0"]
    assert node.classic("q").target.deduplicated == 1


def test_the_window_has_an_age() -> None:
    """Counted from the first, not from the duplicates."""
    node = Node()
    peer = declare(node, x_deduplication_window_age=1000)
    put(peer, "a")
    node.tick(500)
    put(peer, "a", "b")
    node.tick(499)
    put(peer, "a")
    assert bodies(peer) == [b"a", b"b"]
    node.tick(1)
    put(peer, "a", "b")
    assert bodies(peer) == [b"a"]
    deduplication = node.classic("q").deduplication()
    assert deduplication is not None
    assert len(deduplication.times) == 2


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=60),
    st.integers(1, 6),
    st.sampled_from([-1, 2, 5]),
)
def test_any_window_is_as_a_simple_one(steps: list[tuple[int, int]], size: int, age: int) -> None:
    """Against a list of all that was noted."""
    window = Deduplication("id", size, age)
    model: list[tuple[int, bytes]] = []
    now = 0
    for number, later in steps:
        now += later
        key = b"%d" % number
        model = [(time, known) for time, known in model if age < 0 or now - time < age]
        expected = key in [known for _, known in model]
        assert window.has(key, now) == expected
        if not expected:
            window.note(key, now)
            model = [*model, (now, key)][-size:]
        records = [entry for record in window.definitions(1) for entry in _read(record)]
        assert [entry for entry in records if age < 0 or now - entry[0] < age] == model


def _read(record: dict[str, object]) -> list[tuple[int, bytes]]:
    keys = record["keys"]
    assert isinstance(keys, bytes)
    return list(read_keys(keys))


def test_places_of_what_is_forgotten_are_used_again() -> None:
    window = Deduplication("id", 10, -1)
    for number in range(100_000):
        window.note(b"%d" % number, number)
    assert len(window.times) == 10
    assert len(window.order) < 20_000


# -- with other things -----------------------------------------------------------------------------


def test_a_duplicate_is_confirmed_when_its_first_one_is_synced() -> None:
    """As if it had been taken: nobody may hear that it is safe before it is."""
    node = Node()
    first, second = declare(node), node.connect()
    for peer in (first, second):
        peer.call(1, "confirm.select")
    put(first, "a")
    put(second, "a")
    assert first.names() == second.names() == []
    # The group of the first is being written; a third one comes in the meantime.
    node.begin_sync()
    put(second, "a")
    assert second.names() == []
    node.write()
    node.end_sync()
    assert first.names() == ["basic.ack"]
    node.sync()
    assert [ack.delivery_tag for ack in second.take()][-1] == 2
    # Synced as it is, it is confirmed at once.
    put(second, "a")
    assert second.names() == ["basic.ack"]


def test_what_is_refused_is_not_known() -> None:
    """The same message sent again later is taken."""
    node = Node()
    peer = declare(node, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    put(peer, "a", "b", "b")
    assert bodies(peer) == [b"a"]
    put(peer, "b")
    assert bodies(peer) == [b"b"]
    assert node.classic("q").target.deduplicated == 0


def test_a_limited_queue_drops_its_head_all_the_same() -> None:
    node = Node()
    peer = declare(node, **{"x-max-length": 2})
    put(peer, "a", "b", "b", "c")
    assert bodies(peer) == [b"b", b"c"]


def test_in_a_transaction_too() -> None:
    node = Node()
    peer = declare(node)
    peer.call(1, "tx.select")
    put(peer, "a", "a")
    peer.call(1, "tx.commit")
    assert bodies(peer) == [b"a"]


def test_dead_letters_are_deduplicated() -> None:
    node = Node()
    peer = declare(node)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    peer.declare("source", arguments=arguments)
    for _ in range(2):
        peer.send(publish(1, "", "source", b"m", headers={"id": 1}))
        peer.call_get("source")
    peer.send(method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=False))
    assert bodies(peer) == [b"m"]


def test_a_policy_does_it_and_ends_it() -> None:
    node = Node()
    peer = node.connect()
    peer.declare("q")
    definition: dict[str, object] = {"deduplication-header": "id", "deduplication-window-size": 2}
    node.vhost.policies.set(make_policy("p", "^q$", definition))
    put(peer, 1, 1, 2, 3, 1)
    assert bodies(peer) == [b"1", b"2", b"3", b"1"]
    node.vhost.policies.clear("p")
    put(peer, 1, 1)
    assert bodies(peer) == [b"1", b"1"]


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


ENDS = [stopped, killed, checkpointed, all_of_it]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("policy", [False, True])
def test_the_window_is_there_again(end: Callable[[Node], Node], policy: bool) -> None:
    node = Node()
    if policy:
        peer = node.connect()
        peer.declare("q")
        definition: dict[str, object] = {"deduplication-header": "id"}
        node.vhost.policies.set(make_policy("p", "^q$", definition))
    else:
        peer = declare(node)
    put(peer, "gone", "stays")
    assert peer.call_get("q", no_ack=True).body == b"gone"
    again = end(node)
    peer = again.connect()
    put(peer, "gone", "stays", "new")
    assert bodies(peer) == [b"stays", b"new"]


@pytest.mark.parametrize("end", ENDS)
def test_its_ages_and_its_size_are_kept(end: Callable[[Node], Node]) -> None:
    node = Node()
    peer = declare(node, x_deduplication_window_size=2, x_deduplication_window_age=10_000)
    put(peer, 1, 2)
    node.tick(5000)
    put(peer, 3)
    again = end(node)
    again.tick(4999)
    peer = again.connect()
    put(peer, 2, 3)
    assert bodies(peer) == [b"1", b"2", b"3"]
    put(peer, 1)
    assert bodies(peer) == [b"1"]
    put(peer, 3)
    assert bodies(peer) == []
    again.tick(5001)
    put(peer, 3)
    assert bodies(peer) == [b"3"]


def test_what_was_published_during_a_checkpoint_is_known() -> None:
    node = Node()
    peer = declare(node, x_deduplication_window_size=5000)
    put(peer, *range(1500))
    number = 1500
    while not node.step_checkpoint(items=1):
        put(peer, number)
        number += 1
        node.sync()
    again = killed(node)
    peer = again.connect()
    put(peer, *range(number + 1))
    assert bodies(peer)[-1] == b"%d" % number
    assert again.classic("q").ready_count() == 0
    assert again.classic("q").target.deduplicated == number


def test_what_a_crash_took_is_new() -> None:
    """A message that was only in memory may be sent again."""
    node = Node()
    peer = declare(node)
    put(peer, "a", persistent=False)
    node.sync()
    put(peer, "b")
    again = Node(RecordingDisk(node.crashed(lambda _: 0)[0]), clock=node.clock)
    peer = again.connect()
    put(peer, "a", "b")
    assert bodies(peer) == [b"a", b"b"]


def test_a_window_of_a_deleted_queue_is_no_other_s() -> None:
    node = Node()
    peer = declare(node)
    put(peer, "a")
    node.take_checkpoint()
    peer.call(1, "queue.delete", queue="q")
    declare(node)
    again = killed(node)
    peer = again.connect()
    put(peer, "a")
    assert bodies(peer) == [b"a"]


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({HEADER: 5}, "{unacceptable_type,signedint}"),
        ({HEADER: "id", SIZE: 0}, "{value_zero,0}"),
        ({HEADER: "id", SIZE: 1_000_001}, "{max_value_exceeded,1000001}"),
        ({HEADER: "id", AGE: "1s"}, '"expected integer, got longstr"'),
        ({HEADER: "id", AGE: -1}, "{value_negative,-1}"),
        ({HEADER: "id", "x-queue-type": "stream"}, "of queue type rabbit_stream_queue"),
    ],
)
def test_what_no_window_can_be_is_406(arguments: dict[str, object], why: str) -> None:
    peer = Node().connect()
    peer.send(method(1, "queue.declare", queue="q", durable=True, arguments=arguments))
    closed = peer.expect(1, "channel.close")
    assert closed.code == 406
    assert closed.text.endswith(why)
