"""Quotas: what a user or a vhost may have of queues, bindings and messages, and who is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from leveret.broker.definitions.imports import import_definitions
from leveret.broker.parameters import DEFAULT_USER_LIMITS
from leveret.broker.quotas import QUOTA_RECOUNT_QUEUES, QUOTA_SLACK_MESSAGES, Use
from leveret.broker.stats.quota_use import user_quotas, vhost_quotas
from leveret.errors import PreconditionFailed
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, Peer
from support.node.exporting import export_definitions
from support.node.staged import commit, stage, stage_queue
from support.wire.raw_codec import method, publish

ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}

#: A body whose message counts 100 bytes: its properties take the rest.
BODY: Final = b"m" * 97

USER_AND_VHOST: Final = pytest.mark.parametrize("place", ["user", "vhost"])


def node_with_users() -> Node:
    node = Node()
    node.add_user("alice", **ALL)
    node.add_user("bob", **ALL)
    return node


@pytest.fixture
def node() -> Node:
    return node_with_users()


def limit(node: Node, place: str, **limits: int) -> None:
    """Set quotas of alice, or of the vhost; `queues` stands for `max-queues`."""
    named = {f"max-{name.replace('_', '-')}": most for name, most in limits.items()}
    if place == "user":
        node.broker.users.set_limits("alice", named)
    else:
        node.vhost.limits.add(dict(named))


def use_of(node: Node, place: str) -> Use:
    if place == "vhost":
        return node.vhost.use
    use = node.core.quotas.of(node.broker.users.owner("alice"))
    assert use is not None
    return use


def used(node: Node, place: str) -> tuple[int, int]:
    """Messages and bytes that count."""
    use = use_of(node, place)
    use.count_messages()
    return int(use.messages), int(use.bytes)


def refused(peer: Peer, name: str, **values: Any) -> str:
    """The text of the 406 that a method is refused with; the channel is open again."""
    peer.send(method(1, name, **values))
    close = peer.expect(1, "channel.close")
    assert close.code == 406
    peer.send(method(1, "channel.close-ok"))
    peer.call(1, "channel.open")
    return str(close.text)


def confirming(node: Node, user: str) -> Peer:
    peer = node.connect_as(user)
    peer.call(1, "confirm.select")
    return peer


def send(peer: Peer, queue: str, count: int = 1, *, exchange: str = "", **values: Any) -> list[str]:
    """Publish and return how each message was answered: "ack" or "nack"."""
    before = len(peer.take())
    assert before == 0
    answers: list[str] = []
    for _ in range(count):
        peer.send(publish(1, exchange, queue, BODY, delivery_mode=2, **values))
        peer.node.sync()
        for answer in peer.take():
            name = answer.name.removeprefix("basic.")
            if name in ("ack", "nack"):
                answers.append(name)
    return answers


def restarted(node: Node) -> Node:
    """The broker after a crash that lost nothing that was synced."""
    return Node(RecordingDisk(node.image()))


# -- queues and bindings -------------------------------------------------------------------------


@USER_AND_VHOST
def test_queues_have_a_quota(node: Node, place: str) -> None:
    limit(node, place, queues=2)
    peer = node.connect_as("alice")
    peer.declare("a")
    peer.declare("x", durable=False, exclusive=True)
    text = refused(peer, "queue.declare", queue="b")
    assert "queue limit " in text
    assert "(2) is reached" in text
    assert "b" not in node.vhost.queues.by_name
    # What is there may be declared again, and what goes gives its place back.
    peer.declare("a")
    peer.call(1, "queue.delete", queue="a")
    peer.declare("b")
    peer.lose()
    peer = node.connect_as("alice")
    peer.declare("c")
    refused(peer, "queue.declare", queue="d")


@USER_AND_VHOST
def test_an_auto_delete_queue_gives_its_place_back(node: Node, place: str) -> None:
    limit(node, place, queues=1)
    peer = node.connect_as("alice")
    peer.declare("a", durable=False, auto_delete=True)
    refused(peer, "queue.declare", queue="b")
    peer.call(1, "basic.consume", queue="a", consumer_tag="c")
    peer.call(1, "basic.cancel", consumer_tag="c")
    peer.declare("b")


def test_a_users_quota_is_his_own(node: Node) -> None:
    limit(node, "user", queues=0, bindings=0, messages=0)
    alice, bob = node.connect_as("alice"), confirming(node, "bob")
    refused(alice, "queue.declare", queue="a")
    bob.declare("b")
    bob.call(1, "queue.bind", queue="b", exchange="amq.fanout")
    refused(alice, "queue.bind", queue="b", exchange="amq.direct")
    # What alice publishes counts for bob, whose queue it is.
    assert send(confirming(node, "alice"), "b") == ["ack"]
    assert send(bob, "b") == ["ack"]


@USER_AND_VHOST
def test_bindings_have_a_quota(node: Node, place: str) -> None:
    limit(node, place, bindings=2)
    peer = node.connect_as("alice")
    peer.declare("q")
    peer.call(1, "exchange.declare", exchange="x", type="direct")
    peer.call(1, "queue.bind", queue="q", exchange="x", routing_key="1")
    peer.call(1, "exchange.bind", destination="x", source="amq.topic", routing_key="2")
    for name, ends in (
        ("queue.bind", {"queue": "q", "exchange": "x"}),
        ("exchange.bind", {"destination": "x", "source": "amq.topic"}),
    ):
        text = refused(peer, name, **ends, routing_key="3")
        assert "binding limit " in text
        assert "(2) is reached" in text
    # The same binding again is none more.
    peer.call(1, "queue.bind", queue="q", exchange="x", routing_key="1")
    peer.call(1, "queue.unbind", queue="q", exchange="x", routing_key="1")
    peer.call(1, "queue.bind", queue="q", exchange="x", routing_key="3")
    # Both ends take their bindings with them.
    peer.call(1, "queue.delete", queue="q")
    assert use_of(node, place).bindings == 1
    peer.call(1, "exchange.delete", exchange="x")
    assert use_of(node, place).bindings == 0
    peer.declare("q")
    for kind in ("direct", "topic", "x-modulus-hash"):
        peer.call(1, "exchange.declare", exchange="x", type=kind)
        peer.call(1, "queue.bind", queue="q", exchange="x", routing_key="1")
        peer.call(1, "exchange.delete", exchange="x")
        assert use_of(node, place).bindings == 0


@USER_AND_VHOST
def test_a_super_stream_is_whole_or_not_at_all(node: Node, place: str) -> None:
    peer = node.connect_as("alice")
    for limits, why in (
        ({"queues": 2, "bindings": 9}, "queue"),
        ({"queues": 9, "bindings": 2}, "binding"),
    ):
        limit(node, place, **limits)
        text = refused(
            peer, "queue.declare", queue="s", durable=True,
            arguments={"x-super-stream-partitions": 3},
        )  # fmt: skip
        assert f"{why} limit " in text
        assert "s" not in node.vhost.exchanges.by_name
        assert not node.vhost.queues.by_name
    limit(node, place, queues=3, bindings=3)
    peer.declare("s", arguments={"x-super-stream-partitions": 3})
    assert (use_of(node, "user").queues, use_of(node, "user").bindings) == (3, 3)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_counts_are_after_a_crash_what_they_were(node: Node, checkpoint: bool) -> None:
    limit(node, "user", queues=2, bindings=2, messages=3)
    alice = confirming(node, "alice")
    bob = confirming(node, "bob")
    for number in range(2):
        alice.declare(f"a{number}")
        alice.call(1, "queue.bind", queue=f"a{number}", exchange="amq.fanout")
    bob.declare("b")
    bob.call(1, "queue.bind", queue="b", exchange="amq.topic")
    # What one user publishes to another's queue counts for its owner, now and later.
    assert send(bob, "a0", 2) == ["ack", "ack"]
    assert send(alice, "b", 5) == ["ack"] * 5
    before = [used(node, place) for place in ("user", "vhost")]
    if checkpoint:
        node.take_checkpoint()
    node = restarted(node)
    assert [used(node, place) for place in ("user", "vhost")] == before
    assert before[0][0] == 2
    use = use_of(node, "user")
    assert (use.queues, use.bindings, node.vhost.use.bindings) == (2, 2, 3)
    alice = confirming(node, "alice")
    refused(alice, "queue.declare", queue="c")
    refused(alice, "queue.bind", queue="a0", exchange="amq.topic")
    alice = confirming(node, "alice")
    assert send(alice, "a1", 2) == ["ack", "nack"]


def test_a_user_of_the_same_name_has_nothing_of_his_predecessors(node: Node) -> None:
    limit(node, "user", queues=1)
    node.connect_as("alice").declare("old")
    node.broker.users.delete("alice")
    node.now()
    node.add_user("alice", **ALL)
    limit(node, "user", queues=1)
    assert use_of(node, "user").queues == 0
    node.connect_as("alice").declare("new")
    node.sync()
    node = restarted(node)
    assert use_of(node, "user").queues == 1
    refused(node.connect_as("alice"), "queue.declare", queue="newer")


def test_a_deleted_vhost_gives_everything_back(node: Node) -> None:
    node.broker.add_vhost("v")
    node.broker.users.set_permission("alice", "v", ".*", ".*", ".*")
    peer = node.connect_as("alice", vhost="v")
    peer.declare("q")
    peer.call(1, "queue.bind", queue="q", exchange="amq.fanout")
    peer.send(publish(1, "", "q", BODY))
    use = use_of(node, "user")
    assert (use.queues, use.bindings, used(node, "user")[0]) == (1, 1, 1)
    node.broker.delete_vhost("v")
    assert (use.queues, use.bindings, use.messages, use.bytes) == (0, 0, 0, 0)
    # Who has nothing takes no memory.
    assert not node.core.quotas.users


def test_who_is_refused_everything_takes_no_memory(node: Node) -> None:
    limit(node, "user", queues=0, bindings=0)
    peer = node.connect_as("alice")
    refused(peer, "queue.declare", queue="q")
    node.connect_as("bob").declare("q")
    refused(peer, "queue.bind", queue="q", exchange="amq.fanout")
    assert [use.label for use in node.core.quotas.users.values()] == ["of user 'bob'"]


@USER_AND_VHOST
def test_what_the_operator_imports_is_counted_and_not_refused(node: Node, place: str) -> None:
    peer = node.connect_as("alice")
    peer.declare("q")
    peer.call(1, "queue.bind", queue="q", exchange="amq.fanout")
    # His limits would be replaced by those that he has there.
    definitions = {**export_definitions(node.broker), "users": [], "vhosts": []}
    other = node_with_users()
    limit(other, place, queues=0, bindings=0)
    import_definitions(other.broker, definitions, b"salt" * 4)
    assert list(other.vhost.queues.by_name) == ["q"]
    assert other.vhost.use.bindings == 1
    peer = other.connect_as("alice")
    refused(peer, "queue.declare", queue="r")


def test_limits_are_exported_and_imported(node: Node) -> None:
    for place in ("user", "vhost"):
        limit(node, place, queues=1, bindings=2, messages=3, message_bytes=4)
    other = node_with_users()
    import_definitions(other.broker, export_definitions(node.broker), b"salt" * 4)
    for place in ("user", "vhost"):
        use = use_of(other, place)
        found = (use.queues_max, use.bindings_max, use.messages_max, use.bytes_max)
        assert found == ((1, 2, 3, 4))


@USER_AND_VHOST
def test_a_limit_below_what_is_there_refuses_what_is_new(node: Node, place: str) -> None:
    peer = confirming(node, "alice")
    for name in ("a", "b"):
        peer.declare(name)
        peer.call(1, "queue.bind", queue=name, exchange="amq.fanout")
    assert send(peer, "a", 3) == ["ack"] * 3
    limit(node, place, queues=1, bindings=1, messages=1)
    assert node.classic("a").ready_count() == 3
    assert send(peer, "b") == ["nack"]
    refused(peer, "queue.declare", queue="c")
    refused(peer, "queue.bind", queue="a", exchange="amq.topic")
    limit(node, place, queues=-1, bindings=-1, messages=-1)
    peer.declare("c")
    peer.call(1, "queue.bind", queue="a", exchange="amq.topic")
    peer = confirming(node, "alice")
    assert send(peer, "b") == ["ack"]


# -- defaults -------------------------------------------------------------------------------------


def set_defaults(node: Node, **limits: object) -> None:
    named = {f"max-{name.replace('_', '-')}": most for name, most in limits.items()}
    node.broker.parameters.set_global(DEFAULT_USER_LIMITS, named)


def test_a_default_is_for_users_without_a_limit_of_their_own(node: Node) -> None:
    alice = node.connect_as("alice")
    alice.declare("a")
    set_defaults(node, queues=1, connections=2)
    limit(node, "user", bindings=5)
    refused(alice, "queue.declare", queue="b")
    limit(node, "user", queues=2)
    alice.declare("b")
    refused(alice, "queue.declare", queue="c")
    # -1 is a limit of his own: none.
    limit(node, "user", queues=-1)
    alice.declare("c")
    node.broker.users.clear_limits("alice")
    refused(alice, "queue.declare", queue="d")
    node.broker.parameters.clear_global(DEFAULT_USER_LIMITS)
    alice.declare("d")


@pytest.mark.parametrize("checkpoint", [False, True])
def test_defaults_survive_a_crash(node: Node, checkpoint: bool) -> None:
    set_defaults(node, queues=1, connections=1)
    node.connect_as("alice").declare("a")
    node.sync()
    if checkpoint:
        node.take_checkpoint()
    node = restarted(node)
    alice = node.connect_as("alice")
    refused(alice, "queue.declare", queue="b")
    second = node.dial()
    second.ask_open("alice", "/")
    close = second.expect(0, "connection.close")
    assert (close.code, "user connection limit (1) is reached" in close.text) == (530, True)


def test_the_bytes_of_the_default_follow_from_the_disk(node: Node) -> None:
    """Where there are defaults at all: data of earlier releases have none."""
    node.core.quotas.message_bytes = 150
    node.broker.parameters.apply_defaults()
    alice = confirming(node, "alice")
    alice.declare("a")
    assert send(alice, "a", 2) == ["ack", "ack"]
    alice.call(1, "queue.purge", queue="a")
    set_defaults(node, queues=5)
    assert send(alice, "a", 2) == ["ack", "nack"]
    set_defaults(node, message_bytes=200)
    assert send(alice, "a", 2) == ["ack", "nack"]
    set_defaults(node)
    assert send(alice, "a") == ["ack"]


@pytest.mark.parametrize(
    "value",
    [5, "x", ["max-queues"], {"max-cows": 1}, {"max-queues": "5"}, {"max-queues": True},
     {"max-sinks": 5}, {"max-queues": 1 << 70}],
)  # fmt: skip
def test_a_default_that_cannot_be_is_refused(node: Node, value: object) -> None:
    set_defaults(node, queues=1)
    with pytest.raises(PreconditionFailed):
        node.broker.parameters.set_global(DEFAULT_USER_LIMITS, value)
    assert node.broker.parameters.global_values[DEFAULT_USER_LIMITS] == {"max-queues": 1}
    assert node.broker.users.limit("alice", "max-queues") == 1


def test_any_value_of_an_earlier_release_is_no_default(node: Node) -> None:
    for value in (5, ["max-queues"], {"max-queues": "5"}):
        node.broker.parameters.restore(
            "global_parameter", {"name": DEFAULT_USER_LIMITS, "value": {"value": value}}, True
        )
        node.broker.parameters.apply_defaults()
        assert node.broker.users.limit("alice", "max-queues") == -1


def test_what_is_used_is_shown_beside_the_limits(node: Node) -> None:
    limit(node, "user", queues=5, messages=2)
    limit(node, "vhost", message_bytes=1000)
    alice = confirming(node, "alice")
    alice.declare("a")
    alice.call(1, "queue.bind", queue="a", exchange="amq.fanout")
    send(alice, "a", 3)
    node.connect_as("bob").declare("b")

    def shown(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
        return [tuple(row.get(one) for one in ("limit", "used", "max", "refused")) for row in rows]

    assert shown(user_quotas(node.broker, "alice")) == [
        ("max-connections", 1, None, None),
        ("max-queues", 1, 5, None),
        ("max-bindings", 1, None, None),
        ("max-messages", 2, 2, 1),
        ("max-message-bytes", 200, None, None),
    ]
    assert shown(vhost_quotas(node.broker, "/")) == [
        ("max-connections", 2, None, None),
        ("max-queues", 2, None, None),
        ("max-bindings", 1, None, None),
        ("max-messages", 2, None, 0),
        ("max-message-bytes", 200, 1000, None),
    ]
    assert shown(user_quotas(node.broker, "guest")) == []


# -- messages -------------------------------------------------------------------------------------


@USER_AND_VHOST
@pytest.mark.parametrize("limits", [{"messages": 3}, {"message_bytes": 300}])
def test_messages_have_a_quota(node: Node, place: str, limits: dict[str, int]) -> None:
    limit(node, place, **limits)
    peer = confirming(node, "alice")
    peer.declare("a")
    peer.declare("b")
    assert send(peer, "a", 2) == ["ack"] * 2
    assert send(peer, "b", 2) == ["ack", "nack"]
    assert used(node, place)[0] == 3
    assert use_of(node, place).refused == 1
    # A delivery that waits for its ack counts still.
    message = peer.call_get("a")
    assert send(peer, "b") == ["nack"]
    peer.send(method(1, "basic.ack", delivery_tag=message.delivery_tag))
    assert send(peer, "b", 2) == ["ack", "nack"]
    peer.call(1, "queue.purge", queue="a")
    assert send(peer, "b", 2) == ["ack", "nack"]
    peer.call(1, "queue.delete", queue="b")
    assert send(peer, "a", 4) == ["ack"] * 3 + ["nack"]


def test_a_message_of_the_bytes_quota_fits_and_none_larger(node: Node) -> None:
    limit(node, "user", message_bytes=100)
    peer = confirming(node, "alice")
    peer.declare("a")
    assert send(peer, "a") == ["ack"]
    assert used(node, "user") == (1, 100)
    limit(node, "user", message_bytes=199)
    assert send(peer, "a") == ["nack"]
    limit(node, "user", message_bytes=200)
    assert send(peer, "a") == ["ack"]


@USER_AND_VHOST
def test_what_is_refused_without_confirms_is_dropped_and_counted(node: Node, place: str) -> None:
    limit(node, place, messages=1)
    peer = node.connect_as("alice")
    peer.declare("a")
    peer.send(publish(1, "", "a", BODY) * 5)
    assert peer.take() == []
    assert node.classic("a").ready_count() == 1
    assert use_of(node, place).refused == 4


@USER_AND_VHOST
def test_a_fanout_is_refused_in_part(node: Node, place: str) -> None:
    limit(node, place, messages=2)
    peer = confirming(node, "alice")
    for name in ("a", "b", "c"):
        peer.declare(name)
        peer.call(1, "queue.bind", queue=name, exchange="amq.fanout")
    assert send(peer, "", exchange="amq.fanout") == ["nack"]
    assert [node.classic(name).ready_count() for name in ("a", "b", "c")] == [1, 1, 0]
    # Another user's queue takes it nevertheless.
    if place == "user":
        bob = node.connect_as("bob")
        bob.declare("d")
        bob.call(1, "queue.bind", queue="d", exchange="amq.fanout")
        assert send(peer, "", exchange="amq.fanout") == ["nack"]
        assert node.classic("d").ready_count() == 1


@USER_AND_VHOST
def test_a_transaction_beyond_the_quota_is_partial(node: Node, place: str) -> None:
    limit(node, place, messages=2)
    peer = node.connect_as("alice")
    peer.declare("a")
    peer.call(1, "tx.select")
    peer.send(publish(1, "", "a", BODY) * 3)
    assert "partial tx completion" in refused(peer, "tx.commit")
    assert node.classic("a").ready_count() == 2


@USER_AND_VHOST
def test_what_expires_makes_room(node: Node, place: str) -> None:
    limit(node, place, messages=2)
    peer = confirming(node, "alice")
    peer.declare("a", arguments={"x-message-ttl": 1000})
    peer.declare("b")
    assert send(peer, "a", 3) == ["ack", "ack", "nack"]
    node.tick(1001)
    assert send(peer, "b", 3) == ["ack", "ack", "nack"]


@USER_AND_VHOST
def test_a_dead_letter_takes_the_place_it_had(node: Node, place: str) -> None:
    """Within a full quota: it moves, and is not one message more."""
    limit(node, place, messages=2)
    peer = confirming(node, "alice")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
    peer.declare("a", arguments={"x-message-ttl": 1000, **letters})
    peer.declare("letters")
    assert send(peer, "a", 3) == ["ack", "ack", "nack"]
    node.tick(1001)
    node.tick()
    assert node.classic("letters").ready_count() == 2
    assert used(node, place)[0] == 2
    assert send(peer, "a") == ["nack"]


def test_a_dead_letter_for_a_full_user_is_dropped_or_waits(node: Node) -> None:
    """Of another user's queue: at most once it is lost, at least once it waits for room."""
    alice = node.connect_as("alice")
    alice.declare("letters")
    bob = confirming(node, "bob")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
    bob.declare("once", arguments={"x-message-ttl": 1000, **letters})
    safe = {"x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once"}
    bob.declare(
        "safe", arguments={"x-queue-type": "quorum", "x-message-ttl": 1000, **letters, **safe}
    )
    limit(node, "user", messages=0)
    assert send(bob, "once") == ["ack"]
    assert send(bob, "safe") == ["ack"]
    node.tick(1001)
    node.tick(1001)
    assert node.classic("letters").ready_count() == 0
    limit(node, "user", messages=5)
    node.tick(1001)
    assert node.classic("letters").ready_count() == 1


@USER_AND_VHOST
def test_a_stream_has_its_share(node: Node, place: str) -> None:
    limit(node, place, messages=2)
    peer = confirming(node, "alice")
    peer.declare("s", arguments={"x-queue-type": "stream"})
    assert send(peer, "s", 3) == ["ack", "ack", "nack"]
    # What a consumer has read stays.
    peer.call(1, "basic.qos", prefetch_count=1)
    peer.call(1, "basic.consume", queue="s", arguments={"x-stream-offset": "first"})
    node.sync()
    peer.take()
    assert used(node, place)[0] == 2
    peer.call(1, "queue.delete", queue="s")
    assert used(node, place) == (0, 0)


@USER_AND_VHOST
def test_delayed_messages_count_for_who_declared_the_exchange(node: Node, place: str) -> None:
    limit(node, place, messages=2, queues=1)
    peer = confirming(node, "alice")
    arguments = {"x-delayed-type": "fanout"}
    peer.call(
        1, "exchange.declare", exchange="x", type="x-delayed-message", durable=True,
        arguments=arguments,
    )  # fmt: skip
    # The exchange's store is none of the queues.
    peer.declare("a")
    peer.call(1, "queue.bind", queue="a", exchange="x")
    later = {"headers": {"x-delay": 1000}}
    assert send(peer, "", 3, exchange="x", **later) == ["ack", "ack", "nack"]
    node = restarted(node)
    assert used(node, place)[0] == 2
    peer = confirming(node, "alice")
    assert send(peer, "a") == ["nack"]
    # When they are due they keep their places.
    node.tick(1001)
    assert node.classic("a").ready_count() == 2
    assert used(node, place)[0] == 2
    peer.call(1, "exchange.delete", exchange="x")
    peer.call(1, "queue.delete", queue="a")
    assert used(node, place) == (0, 0)


@USER_AND_VHOST
def test_a_full_queue_drops_its_head_within_the_quota(node: Node, place: str) -> None:
    """At its own limit a queue takes one message for another."""
    limit(node, place, messages=2)
    peer = confirming(node, "alice")
    peer.declare("a", arguments={"x-max-length": 2})
    assert send(peer, "a", 4) == ["ack"] * 4
    assert node.classic("a").ready_count() == 2
    limit(node, place, messages=1)
    peer.declare("b")
    assert send(peer, "b") == ["nack"]


def test_returned_messages_keep_their_places(node: Node) -> None:
    limit(node, "user", messages=2)
    peer = confirming(node, "alice")
    peer.declare("a")
    assert send(peer, "a", 2) == ["ack", "ack"]
    tag = peer.call_get("a").delivery_tag
    peer.send(method(1, "basic.nack", delivery_tag=tag, requeue=True))
    assert used(node, "user")[0] == 2
    assert send(peer, "a") == ["nack"]


def test_acked_messages_that_are_kept_count(node: Node) -> None:
    limit(node, "user", messages=2)
    peer = confirming(node, "alice")
    peer.declare("a", arguments={"x-retain-acked-bytes": 400})
    assert send(peer, "a", 2) == ["ack", "ack"]
    for _ in range(2):
        tag = peer.call_get("a").delivery_tag
        peer.send(method(1, "basic.ack", delivery_tag=tag))
    assert used(node, "user")[0] == 1
    assert send(peer, "a", 2) == ["ack", "nack"]


def test_nothing_is_judged_while_the_quota_is_far(node: Node) -> None:
    """So a publish costs what it did; when the quota is near it is, and no more when it is not."""
    limit(node, "user", messages=10 * QUOTA_SLACK_MESSAGES)
    peer = node.connect_as("alice")
    peer.declare("a")
    target = node.classic("a").target
    one = publish(1, "", "a", b"m")
    published = 0
    while not target.checks_admission:
        peer.send(one * 1024)
        published += 1024
        assert published < 10 * QUOTA_SLACK_MESSAGES
    peer.send(one * 11 * QUOTA_SLACK_MESSAGES)
    assert used(node, "user")[0] == 10 * QUOTA_SLACK_MESSAGES
    peer.call(1, "queue.purge", queue="a")
    peer.send(one * 64)
    assert not target.checks_admission


def test_a_quota_holds_over_many_queues(node: Node) -> None:
    """Even if every publish goes to another one, so that none of them is counted by itself."""
    most = 100
    limit(node, "user", messages=most)
    peer = node.connect_as("alice")
    for number in range(150):
        peer.declare(f"q{number}")
    for number in range(150):
        peer.send(publish(1, "", f"q{number}", b"m"))
    assert used(node, "user")[0] == most


def test_a_quota_that_comes_near_counts_what_no_queue_has_noted(node: Node) -> None:
    """Not only in the queue whose message was one too many."""
    most = 3 * QUOTA_SLACK_MESSAGES + 1000
    limit(node, "user", messages=most)
    peer = node.connect_as("alice")
    peer.declare("a")
    peer.declare("b")
    # A queue is counted after so many messages; these come after the last time.
    peer.send(publish(1, "", "b", b"m") * 63)
    use = use_of(node, "user")
    assert (use.messages, use.watched) == (0, False)
    peer.send(publish(1, "", "a", b"m") * most)
    assert use.watched
    assert node.classic("a").ready_count() == most - 63


def test_what_left_any_of_very_many_queues_is_found_by_the_second_try(node: Node) -> None:
    queues = QUOTA_RECOUNT_QUEUES + 64
    limit(node, "user", messages=queues)
    peer = node.connect_as("alice")
    for number in range(queues):
        peer.send(method(1, "queue.declare", queue=f"q{number}", no_wait=True))
        peer.send(publish(1, "", f"q{number}", b"m"))
    peer.send(publish(1, "", "q0", b"m"))
    assert use_of(node, "user").refused == 1
    # What left any of them is found by the second try at the latest.
    peer.call(1, "queue.purge", queue=f"q{queues - 1}")
    peer.send(publish(1, "", "q0", b"m") * 2)
    assert node.classic("q0").ready_count() == 2


@USER_AND_VHOST
def test_each_copy_of_a_refused_fan_out_is_counted_as_refused(node: Node, place: str) -> None:
    """Each of its copies is refused, and each would count all queues again."""
    queues = 200
    limit(node, place, messages=queues)
    peer = node.connect_as("alice")
    for number in range(queues):
        name = f"q{number}"
        peer.send(method(1, "queue.declare", queue=name, no_wait=True))
        peer.send(method(1, "queue.bind", queue=name, exchange="amq.fanout", no_wait=True))
        peer.send(publish(1, "", name, b"m"))
    peer.send(publish(1, "amq.fanout", "", b"m"))
    assert use_of(node, place).refused == queues
    # In the next turn, what has left is found.
    peer.call(1, "queue.purge", queue="q7")
    peer.send(publish(1, "", "q0", b"m"))
    assert node.classic("q0").ready_count() == 2


@pytest.mark.parametrize("change", ["raise", "clear", "delete-user"])
def test_a_limit_may_change_during_use(node: Node, change: str) -> None:
    limit(node, "user", messages=1)
    node.connect_as("alice").declare("a")
    bob = confirming(node, "bob")
    assert send(bob, "a", 2) == ["ack", "nack"]
    changes: dict[str, Callable[[], object]] = {
        "raise": lambda: limit(node, "user", messages=2),
        "clear": lambda: node.broker.users.clear_limits("alice"),
        "delete-user": lambda: node.broker.users.delete("alice"),
    }
    changes[change]()
    assert send(bob, "a", 2) == ["ack", "nack" if change == "raise" else "ack"]


def test_a_committed_batch_waits_for_room(node: Node) -> None:
    """What is staged counts until it is committed; then it finds its room, or waits for it."""
    limit(node, "user", messages=2)
    peer = confirming(node, "alice")
    peer.declare("q")
    stage_queue(peer, "part")
    stage(peer, "part", BODY, BODY, BODY)
    node.sync()
    assert node.waiting("part").ready_count() == 2
    peer.take()
    assert send(peer, "q") == ["nack"]
    commit(peer, "part")
    node.sync()
    node.tick()
    assert node.classic("q").ready_count() == 2
    assert used(node, "user")[0] == 2
    # A batch that finds none waits, and nothing of it is lost.
    stage_queue(peer, "next", batch=2)
    peer.call(1, "queue.purge", queue="q")
    node.sync()
    stage(peer, "next", BODY, BODY)
    commit(peer, "next", batch=2)
    limit(node, "user", messages=1)
    node.sync()
    node.tick(2000)
    assert node.classic("q").ready_count() == 1
    peer.take()
    peer.call(1, "queue.purge", queue="q")
    node.tick(2000)
    assert node.classic("q").ready_count() == 1
