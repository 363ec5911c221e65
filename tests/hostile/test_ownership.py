"""What a client makes by use has an owner, and nobody else changes it.

Which kinds of things there are is derived: from the kinds of records, and of definitions, that the
journal holds.  One that is new has to be told apart here, and if clients make it by use, to be
tried as another user.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from leveret.broker.ownership import Owner
from leveret.broker.publishers.publishers import Publishers
from leveret.broker.sinks.commit import COMMIT_KEY
from leveret.broker.sinks.giving import give_sinks
from leveret.broker.sinks.release import Sink
from leveret.broker.sinks.staging import staging_of
from leveret.client import BasicProperties
from leveret.client.blocking import connect
from leveret.client.errors import Returned
from leveret.errors import AccessRefused
from leveret.limits import (
    PUBLISHERS_PER_QUEUE_MAX,
    PUBLISHERS_PER_USER_MAX,
    SINKS_PER_USER_MAX,
    SINKS_PER_VHOST_MAX,
    STREAM_OFFSET_NAMES_MAX,
    STREAM_OFFSET_NAMES_PER_USER_MAX,
)
from leveret.management.api import users_routes
from leveret.session.settings import SessionSettings
from leveret.store.records.record import is_kind, kind_name
from leveret.wire.spec import METHODS
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import unique
from support.http.http_api import Api
from support.http.http_streams import HttpUser, http_port
from support.node.core import Node, Peer
from support.node.staged import checkpointed, claimed, commit, killed, stage, stage_queue, stopped
from support.wire.raw import Method
from support.wire.raw_codec import method, publish

#: The greatest number that a batch or a message can have: what comes after it is dropped.
HIGHEST: Final = 2**63 - 1

ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}

#: What each kind of record is about.  `used`: a named thing that clients make by use, and that is
#: tried below; `declared`: a thing that is declared, for which there are permissions; `message`:
#: messages, and what becomes of them; `own`: the broker's own.
RECORDS: Final = {
    "define": "declared", "delete": "declared", "publish": "message", "ack": "message",
    "requeue": "message", "move": "message", "purge": "message", "tx": "own", "trim": "message",
    "consumer_offset": "used", "publisher_sequence": "used", "checkpoint": "own",
    "clean_stop": "own", "spill": "own", "publish_session": "own",
    "body_part": "message", "publish_in_parts": "message",
    "snapshot": "own", "counter": "own", "queue": "own",
    "acked": "message", "chunk": "own", "end": "own",
}  # fmt: skip

#: The same of each kind of definition.  The keys of a window (`deduplication`) are what the
#: messages of a queue hold, whoever published them: who may write there says what is taken once.
DEFINITIONS: Final = {
    "vhost": "declared", "user": "declared", "permission": "declared",
    "topic_permission": "declared", "user_limits": "declared", "policy": "declared",
    "operator_policy": "declared", "parameter": "declared", "global_parameter": "declared",
    "exchange": "declared", "queue": "declared", "binding": "declared", "redelivered": "message",
    "levels": "message", "retry": "message", "deduplication": "message",
    "stream_id": "own", "start": "own",
    "sink": "used", "publisher": "used", "stream_consumer": "used", "batch_start": "own",
    # Made to see whether they could be kept, and not kept.
    "arguments": "declared", "super_stream": "declared",
}  # fmt: skip

#: The kinds that tell of one thing together.
SAME: Final = {"publisher_sequence": "publisher", "consumer_offset": "stream_consumer"}


def test_every_kind_of_record_is_told_apart() -> None:
    assert {kind_name(kind) for kind in range(256) if is_kind(kind)} == set(RECORDS)
    used = {name for name, what in (RECORDS | DEFINITIONS).items() if what == "used"}
    assert {SAME.get(name, name) for name in used} == set(THINGS)


def test_every_kind_of_definition_is_told_apart() -> None:
    found: set[str] = set()
    source = Path(__file__).parents[2] / "src" / "leveret"
    for path in [*source.glob("broker/**/*.py"), *source.glob("app/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and _called(node.func) in DEFINING:
                found |= _texts(node.args[0])
    assert found == set(DEFINITIONS)


DEFINING: Final = ("define", "Definition")


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


#: What the names of variables stand for that are given as a kind.
NAMED: Final = {
    "BATCH_START": {"batch_start"},
    "STREAM_ID_FIELD": {"stream_id"},
    # The restore's own, which takes what a record told.
    "definition": set(),
    "kind": {"policy", "operator_policy", "parameter", "global_parameter"},
}


def _texts(kind: ast.expr) -> set[str]:
    """The kinds that an argument can be; one that is not understood fails here."""
    if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
        return {kind.value}
    if isinstance(kind, ast.IfExp):
        return _texts(kind.body) | _texts(kind.orelse)
    assert isinstance(kind, ast.Name), ast.dump(kind)
    return NAMED.get(kind.id, {kind.id})


# -- the things ------------------------------------------------------------------------------------


@dataclass
class Thing:
    """A kind of thing: how its owner makes it, its state, and what others may try."""

    make: Callable[[Node, Peer], None]
    state: Callable[[Node], object]
    acts: dict[str, Callable[[Peer], None]]
    #: The owner goes on with it; what comes of that.
    go_on: Callable[[Node, Peer], object]
    went_on: object
    label: str
    command: str


def _make_sink(node: Node, peer: Peer) -> None:
    peer.declare("q")
    stage_queue(peer, "a", 1, "job")
    peer.call(1, "confirm.select")
    stage(peer, "a", b"one")
    commit(peer, "a", sink="job")
    node.sync()
    node.sync()
    stage_queue(peer, "b", 2, "job")
    stage(peer, "b", b"two")
    node.sync()
    peer.take()


def _sink_state(node: Node) -> object:
    queues = {name: queue.ready_count() for name, queue in node.vhost.queues.by_name.items()}
    sink = node.staging.sinks.by_place.get(("job", ""))
    if sink is None:
        return queues
    return queues, int(sink.batch), int(sink.dropped), int(sink.repeats), _name(sink.owner)


def _name(owner: Owner | None) -> str | None:
    return None if owner is None else owner.name


def _commit(batch: int, *queues: str, **more: str) -> Callable[[Peer], None]:
    def act(peer: Peer) -> None:
        body = {"sink": "job", "batch": batch, "queues": queues, **more}
        peer.send(publish(1, "", COMMIT_KEY, json.dumps(body).encode()))

    return act


def _call(name: str, **values: Any) -> Callable[[Peer], None]:
    return lambda peer: peer.send(method(1, name, **values))


def _stage_into(queue: str) -> Callable[[Peer], None]:
    return lambda peer: stage(peer, queue, b"junk")


def _go_on_sink(node: Node, peer: Peer) -> object:
    peer.take()
    commit(peer, "b", batch=2, sink="job")
    node.sync()
    node.sync()
    return peer.names(), int(node.vhost.queues.by_name["q"].ready_count())


STAGING: Final = {"x-staging-sink": "job", "x-staging-batch": 2}


SINK: Final = Thing(
    _make_sink,
    _sink_state,
    {
        "the highest batch": _commit(HIGHEST),
        "a batch again": _commit(1),
        "the next batch": _commit(2),
        "his staging queue": _commit(2, "b"),
        "one that fails lower": _commit(HIGHEST, lower="fail"),
    },
    _go_on_sink,
    (["basic.ack"], 2),
    "sink 'job'",
    "set_sink_owner",
)


def _numbered(number: int, **more: Any) -> Callable[[Peer], None]:
    def act(peer: Peer) -> None:
        where = {"exchange": "", "routing_key": "q", "headers": {}} | more
        exchange, key, others = (where.pop(one) for one in ("exchange", "routing_key", "headers"))
        headers = {"x-publisher": "job", "x-publishing-id": number, **others}
        peer.send(publish(1, exchange, key, b"m", delivery_mode=2, headers=headers, **where))

    return act


def _make_publisher(node: Node, peer: Peer) -> None:
    peer.declare("q")
    peer.call(1, "queue.bind", queue="q", exchange="amq.fanout", routing_key="")
    peer.call(1, "confirm.select")
    _numbered(1)(peer)
    node.sync()
    peer.take()


def _publisher_state(node: Node) -> object:
    queue = node.vhost.queues.by_name["q"]
    publishers = queue.target.publishers
    assert publishers is not None
    known = {
        name: (int(one.number), int(one.time_ms), _name(one.owner))
        for name, one in publishers.by_name.items()
    }
    return known, int(queue.ready_count()), int(queue.target.deduplicated)


def _in_tx(act: Callable[[Peer], None]) -> Callable[[Peer], None]:
    def whole(peer: Peer) -> None:
        peer.call(1, "tx.select")
        act(peer)

    return whole


def _with_consumer(act: Callable[[Peer], None]) -> Callable[[Peer], None]:
    def whole(peer: Peer) -> None:
        taker = peer.node.connect()
        taker.call(1, "basic.qos", prefetch_count=2)
        taker.call(1, "basic.consume", queue="q")
        peer.node.sync()
        act(peer)
        taker.lose()

    return whole


def _go_on_publisher(node: Node, peer: Peer) -> object:
    _numbered(2)(peer)
    node.sync()
    return peer.names(), int(node.vhost.queues.by_name["q"].ready_count())


PUBLISHER: Final = Thing(
    _make_publisher,
    _publisher_state,
    {
        "the highest number": _numbered(HIGHEST),
        "a number again": _numbered(1),
        "by another exchange": _numbered(HIGHEST, exchange="amq.fanout"),
        "by CC": _numbered(HIGHEST, routing_key="none", headers={"CC": ["q"]}),
        "in a transaction": _in_tx(_numbered(HIGHEST)),
        "immediate": _numbered(HIGHEST, immediate=True),
    },
    _go_on_publisher,
    (["basic.ack"], 2),
    "publisher name 'job'",
    "set_publisher_owner",
)


def _make_name(node: Node, peer: Peer) -> None:
    peer.declare("s", arguments={"x-queue-type": "stream"})
    for body in (b"0", b"1", b"2"):
        peer.send(publish(1, "", "s", body))
    node.sync()
    node.stream("s").offsets.set("job", 1, Owner("alice", node.broker.users.owner("alice").number))
    node.sync()


def _name_state(node: Node) -> object:
    offsets = node.stream("s").offsets
    owners = {name: _name(owner) for name, owner in offsets.owners.items()}
    return (
        dict(offsets.stored),
        owners,
        {name: len(one.consumers) for name, one in offsets.groups.items()},
    )


def _read(**more: Any) -> Callable[[Peer], None]:
    def act(peer: Peer) -> None:
        peer.call(1, "basic.qos", prefetch_count=10)
        arguments = {"x-stream-consumer": "job", "x-stream-offset": "last"}
        peer.send(method(1, "basic.consume", queue="s", arguments=arguments, **more))

    return act


def _go_on_name(node: Node, peer: Peer) -> object:
    _read()(peer)
    peer.expect(1, "basic.consume-ok")
    return peer.bodies()


NAME: Final = Thing(
    _make_name,
    _name_state,
    {"read on": _read(), "keep others out": _read(exclusive=True)},
    _go_on_name,
    [b"1", b"2"],
    "consumer name 'job'",
    "set_stream_consumer_owner",
)

THINGS: Final = {"sink": SINK, "publisher": PUBLISHER, "stream_consumer": NAME}

#: What becomes of the node between the owner's act and the other's.
ENDS: Final[dict[str, Callable[[Node], Node]]] = {
    "at once": lambda node: node,
    "after a kill": killed,
    "after a checkpoint": checkpointed,
    "after a stop": stopped,
}

ACTS: Final = [(kind, act) for kind, thing in THINGS.items() for act in thing.acts]


#: RabbitMQ's clients may not publish with `immediate`; it is one more way in.
SETTINGS: Final = SessionSettings("test", compatible=False)


def _end(node: Node, end: str) -> Node:
    node = ENDS[end](node)
    node.settings = SETTINGS
    return node


def _node(*users: str) -> Node:
    node = Node(settings=SETTINGS)
    for user in users or ("alice", "mallory"):
        node.add_user(user, **ALL)
    node.sync()
    return node


def refused(peer: Peer) -> Method:
    """The close of the channel, which says that the access is refused."""
    closes = [got for got in peer.take() if got.name == "channel.close"]
    assert [close.code for close in closes] == [403], closes
    return closes[0]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("kind", "act"), ACTS, ids=[f"{kind}: {act}" for kind, act in ACTS])
def test_nobody_changes_what_another_made_by_use(kind: str, act: str, end: str) -> None:
    """With all rights in the vhost, but not the owner's."""
    thing = THINGS[kind]
    node = _node()
    thing.make(node, node.connect_as("alice"))
    node = _end(node, end)
    before = thing.state(node)
    mallory = node.connect_as("mallory")
    thing.acts[act](mallory)
    text = refused(mallory).text
    assert thing.label in text
    assert thing.command in text
    assert "alice" not in text
    node.sync()
    assert thing.state(node) == before
    alice = node.connect_as("alice")
    alice.call(1, "confirm.select")
    assert thing.go_on(node, alice) == thing.went_on


@pytest.mark.parametrize("kind", THINGS)
def test_a_user_of_the_same_name_made_later_is_another(kind: str) -> None:
    """Also where the user was deleted and made before the restart, by whatever the journal says."""
    for end in ENDS:
        thing = THINGS[kind]
        node = _node()
        thing.make(node, node.connect_as("alice"))
        node.broker.users.delete("alice")
        node.run()
        node.sync()
        node = _end(node, end)
        node.add_user("alice", **ALL)
        node.sync()
        before = thing.state(node)
        for act in thing.acts.values():
            alice = node.connect_as("alice")
            act(alice)
            refused(alice)
        assert thing.state(node) == before
        node = _end(node, end)
        alice = node.connect_as("alice")
        next(iter(thing.acts.values()))(alice)
        refused(alice)


@pytest.mark.parametrize("kind", THINGS)
def test_the_password_and_tags_of_a_user_make_no_other(kind: str) -> None:
    thing = THINGS[kind]
    node = _node()
    thing.make(node, node.connect_as("alice"))
    node.add_user("alice", "monitoring")
    node.sync()
    node = checkpointed(node)
    alice = node.connect_as("alice")
    alice.call(1, "confirm.select")
    assert thing.go_on(node, alice) == thing.went_on


# -- staging queues --------------------------------------------------------------------------------

#: The methods that name a queue, with what each needs beside it.
NAMING: Final = sorted(
    name
    for name, spec in METHODS.items()
    if any(field.name == "queue" for field in spec.fields) and not name.endswith("-ok")
)
BESIDE: Final[dict[str, dict[str, Any]]] = {
    "queue.declare": {"durable": True, "arguments": STAGING},
    "queue.bind": {"exchange": "amq.fanout", "routing_key": "k"},
    "queue.unbind": {"exchange": "amq.fanout", "routing_key": "k"},
}


@pytest.mark.parametrize("more", [{}, {"passive": True}, {"x-browse": True}])
@pytest.mark.parametrize("name", NAMING)
def test_a_staging_queue_is_its_owners_alone(name: str, more: dict[str, bool]) -> None:
    node = _node()
    _make_sink(node, node.connect_as("alice"))
    node.vhost.exchanges.restore_binding(
        node.vhost.exchanges.by_name["amq.fanout"], "b", True, "k", {}
    )
    before = (
        _sink_state(node),
        len(node.vhost.exchanges.bindings_to(node.vhost.queues.by_name["b"])),
    )
    mallory = node.connect_as("mallory")
    values = dict(BESIDE.get(name, {}))
    if "passive" in more and name == "queue.declare":
        values["passive"] = True
    if "x-browse" in more and name == "basic.consume":
        values["arguments"] = more
    mallory.send(method(1, name, queue="b", **values))
    refused(mallory)
    assert (
        _sink_state(node),
        len(node.vhost.exchanges.bindings_to(node.vhost.queues.by_name["b"])),
    ) == before


def test_nobody_else_stages_in_a_staging_queue() -> None:
    for wrap in (lambda act: act, _in_tx):
        node = _node()
        _make_sink(node, node.connect_as("alice"))
        before = _sink_state(node)
        mallory = node.connect_as("mallory")
        wrap(_stage_into("b"))(mallory)
        assert "staging queue 'b'" in refused(mallory).text
        assert _sink_state(node) == before


def test_who_declared_a_staging_queue_lets_go_of_it() -> None:
    node = _node()
    alice = node.connect_as("alice")
    _make_sink(node, alice)
    assert alice.call(1, "queue.purge", queue="b").fields["message_count"] == 1
    alice.call(1, "queue.delete", queue="b")
    assert "b" not in node.vhost.queues.by_name


def test_another_user_of_a_name_stages_beside_the_owner() -> None:
    """The first commit decides whose the sink is; what the other staged stays, and is refused."""
    node = _node()
    alice, mallory = node.connect_as("alice"), node.connect_as("mallory")
    alice.declare("q")
    stage_queue(alice, "a", 1, "job")
    stage_queue(mallory, "m", 0, "job")
    for peer, queue in ((alice, "a"), (mallory, "m")):
        peer.call(1, "confirm.select")
        stage(peer, queue, queue.encode())
        node.sync()
        peer.take()
    commit(alice, "a", sink="job")
    node.sync()
    node.sync()
    assert alice.names() == ["basic.ack"]
    # A lower batch of its own sink would go.
    assert node.vhost.queues.by_name["m"].ready_count() == 1
    commit(mallory, "m", batch=0, sink="job", mandatory=True)
    node.sync()
    assert mallory.take()[0].code == 403
    assert node.vhost.queues.by_name["m"].ready_count() == 1
    stage(mallory, "m", b"more")
    node.sync()
    assert node.vhost.queues.by_name["m"].ready_count() == 2


def test_of_two_first_commits_the_one_that_is_settled_owns_the_sink() -> None:
    """Both are looked at before either is decided."""
    node = _node()
    alice, mallory = node.connect_as("alice"), node.connect_as("mallory")
    alice.declare("q")
    for peer, queue in ((alice, "a"), (mallory, "m")):
        stage_queue(peer, queue, 1, "job")
        peer.call(1, "confirm.select")
        stage(peer, queue, queue.encode())
    commit(alice, "a", sink="job")
    commit(mallory, "m", sink="job", mandatory=True)
    for _ in range(4):
        node.sync()
    assert "basic.nack" not in alice.names()
    codes = [got.code for got in mallory.take() if got.name == "basic.return"]
    assert codes == [403]
    assert node.vhost.queues.by_name["q"].ready_count() == 1
    assert _name(node.staging.sinks.by_place["job", ""].owner) == "alice"


def test_junk_of_a_name_hides_no_sink_from_its_owner() -> None:
    """One without a destination is adopted by its owner's destination, whatever others have."""
    node = _node()
    alice = node.connect_as("alice")
    _make_sink(node, alice)
    mallory = node.connect_as("mallory")
    node.broker.users.set_permission("mallory", "/", "^job$", "amq.default", "")
    mallory.call(1, "confirm.select")
    commit(mallory, batch=HIGHEST, sink="job", destination="elsewhere")
    node.sync()
    assert mallory.names() == ["basic.ack"]
    commit(alice, batch=1, sink="job", destination="here")
    node.sync()
    sink = node.staging.sinks.by_place["job", "here"]
    assert (int(sink.batch), sink.adopted, int(sink.repeats)) == (1, True, 1)


# -- how many --------------------------------------------------------------------------------------


def test_quotas_lie_well_below_what_there_is_in_all() -> None:
    assert 4 * SINKS_PER_USER_MAX <= SINKS_PER_VHOST_MAX
    assert 4 * PUBLISHERS_PER_USER_MAX <= PUBLISHERS_PER_QUEUE_MAX
    assert 4 * STREAM_OFFSET_NAMES_PER_USER_MAX <= STREAM_OFFSET_NAMES_MAX


def _fill_sinks(node: Node, owner: Owner, count: int) -> None:
    for number in range(count):
        sink = Sink(f"junk{number}", "")
        sink.batch, sink.time_ms, sink.owner = 1, node.clock.wall_ms(), owner
        node.staging.restore(sink, [])


def test_junk_sinks_of_one_user_leave_room_for_others() -> None:
    node = _node()
    _fill_sinks(node, node.broker.users.owner("mallory"), SINKS_PER_USER_MAX)
    mallory = node.connect_as("mallory")
    mallory.send(publish(1, "", COMMIT_KEY, b'{"sink": "more", "batch": 1, "queues": []}'))
    close = mallory.expect(1, "channel.close")
    assert (close.code, "delete_sink" in close.text) == (406, True)
    again = node.connect_as("mallory")
    again.call(1, "confirm.select")
    commit(again, batch=2, sink="junk7")
    node.sync()
    assert again.names() == ["basic.ack"]
    alice = node.connect_as("alice")
    _make_sink(node, alice)
    assert _go_on_sink(node, alice) == SINK.went_on


def test_junk_publishers_of_one_user_leave_room_for_others() -> None:
    node = _node()
    alice = node.connect_as("alice")
    alice.declare("q")
    queue = node.vhost.queues.by_name["q"]
    queue.target.publishers = Publishers(node.core)
    owner = node.broker.users.owner("mallory")
    for number in range(PUBLISHERS_PER_USER_MAX):
        queue.target.publishers.learn(b"%d" % number, 1, node.clock.wall_ms())
        queue.target.publishers.give(queue.target.publishers.by_name[b"%d" % number], owner)
    mallory = node.connect_as("mallory")
    mallory.call(1, "confirm.select")
    _numbered(1)(mallory)
    node.sync()
    assert mallory.names() == ["basic.nack"]
    alice.call(1, "confirm.select")
    _numbered(1)(alice)
    node.sync()
    assert alice.names() == ["basic.ack"]


def test_junk_names_of_one_user_leave_room_for_others() -> None:
    node = _node()
    alice = node.connect_as("alice")
    alice.declare("s", arguments={"x-queue-type": "stream"})
    owner = node.broker.users.owner("mallory")
    for number in range(STREAM_OFFSET_NAMES_PER_USER_MAX):
        node.stream("s").offsets.set(str(number), 0, owner)
    mallory = node.connect_as("mallory")
    _read()(mallory)
    close = mallory.expect(1, "channel.close")
    assert (close.code, "delete_stream_consumer" in close.text) == (406, True)
    assert "job" not in node.stream("s").offsets.owners
    _read()(alice)
    assert _name(node.stream("s").offsets.owners["job"]) == "alice"


@pytest.mark.parametrize("most", [0, 2, -1])
def test_an_operator_sets_a_users_quota(most: int) -> None:
    node = _node()
    limits = {"max-sinks": most, "max-publishers": most, "max-stream-consumers": most}
    node.broker.users.set_limits("mallory", limits)
    node = checkpointed(node)
    guest = node.connect()
    guest.declare("q")
    guest.declare("s", arguments={"x-queue-type": "stream"})
    wanted = 3
    for number in range(wanted):
        peer = node.connect_as("mallory")
        peer.call(1, "confirm.select")
        commit(peer, sink=f"s{number}")
        headers = {"x-publisher": f"p{number}", "x-publishing-id": 1}
        peer.send(publish(1, "", "q", b"m", delivery_mode=2, headers=headers))
        peer.send(method(1, "basic.qos", prefetch_count=1))
        arguments = {"x-stream-consumer": f"c{number}"}
        peer.send(method(1, "basic.consume", queue="s", arguments=arguments))
        node.sync()
    publishers = node.vhost.queues.by_name["q"].target.publishers
    found = [
        len(node.staging.sinks.by_place),
        0 if publishers is None else len(publishers.by_name),
        len(node.stream("s").offsets.owners),
    ]
    assert found == [wanted if most < 0 else most] * 3


def test_what_was_committed_is_forgotten_no_sooner() -> None:
    """Whoever fills the vhost: a sink that is forgotten early would be committed twice."""
    node = _node()
    alice = node.connect_as("alice")
    _make_sink(node, alice)
    node.tick(int(node.core.publisher_expiry_ms) - 1000)
    for number in range(4):
        _fill_sinks(node, Owner(f"u{number}", number), SINKS_PER_USER_MAX)
    mallory = node.connect_as("mallory")
    mallory.send(publish(1, "", COMMIT_KEY, b'{"sink": "more", "batch": 1, "queues": []}'))
    node.sync()
    assert int(node.staging.sinks.by_place["job", ""].batch) == 1


# -- what was recorded without an owner ------------------------------------------------------------


def _unowned(kind: str) -> Node:
    """A node whose thing no record gives an owner, as an earlier release left it."""
    node = _node()
    thing = THINGS[kind]
    thing.make(node, node.connect_as("alice"))
    disown = {
        "sink": _disown_sink,
        "publisher": _disown_publisher,
        "stream_consumer": _disown_name,
    }
    disown[kind](node)
    return checkpointed(node)


def _disown_sink(node: Node) -> None:
    node.staging.sinks.by_place["job", ""].owner = None
    staging = staging_of(node.vhost.queues.by_name["b"])
    assert staging is not None
    staging.staged_by = None


def _disown_publisher(node: Node) -> None:
    publishers = node.vhost.queues.by_name["q"].target.publishers
    assert publishers is not None
    publishers.by_name[b"job"].owner = None


def _disown_name(node: Node) -> None:
    node.stream("s").offsets.owners["job"] = None


@pytest.mark.parametrize("kind", THINGS)
def test_the_first_who_uses_what_nobody_owns_owns_it(kind: str) -> None:
    thing = THINGS[kind]
    node = _unowned(kind)
    alice = node.connect_as("alice")
    alice.call(1, "confirm.select")
    assert thing.go_on(node, alice) == thing.went_on
    for end in ENDS:
        node.sync()
        node = _end(node, end)
        before = thing.state(node)
        for act in thing.acts.values():
            mallory = node.connect_as("mallory")
            act(mallory)
            refused(mallory)
        assert thing.state(node) == before


@pytest.mark.parametrize("recorded", [True, False], ids=["without-an-owner", "new"])
def test_who_may_only_write_to_the_default_exchange_takes_no_sink(recorded: bool) -> None:
    node = _unowned("sink") if recorded else _node("alice", "mallory")
    before = _sink_state(node)
    node.broker.users.set_permission("mallory", "/", "", "amq.default", "")
    mallory = node.connect_as("mallory")
    _commit(HIGHEST)(mallory)
    assert "set_sink_owner" in refused(mallory).text
    assert _sink_state(node) == before
    node.broker.users.set_permission("alice", "/", r"^leveret\.staging\.job\.", "amq.default", "")
    alice = node.connect_as("alice")
    alice.call(1, "confirm.select")
    commit(alice, batch=1, sink="job")
    node.sync()
    assert alice.names() == ["basic.ack"]
    assert _name(node.staging.sinks.by_place["job", ""].owner) == "alice"
    # Who owns it goes on without the right.
    node.broker.users.set_permission("alice", "/", "", "amq.default", "")
    commit(alice, batch=2, sink="job")
    node.sync()
    assert alice.names() == ["basic.ack"]


def test_a_staging_queue_of_any_name_adopts_no_sink() -> None:
    """Whoever may declare any queue can have it say the sink's name; its batch would be the last.

    What was staged for the sink before would go with it.
    """
    node = _unowned("sink")
    before = _sink_state(node)
    node.broker.users.set_permission("mallory", "/", "^mine-", "amq.default", "")
    mallory = node.connect_as("mallory")
    stage_queue(mallory, "mine-x", HIGHEST, "job")
    commit(mallory, "mine-x", batch=HIGHEST, sink="job")
    node.sync()
    assert "set_sink_owner" in refused(mallory).text
    node.connect_as("mallory").call(1, "queue.delete", queue="mine-x")
    assert _sink_state(node) == before


@pytest.mark.parametrize("queue", ["job.2", "leveret.staging.job.2.0.x"])
def test_a_staging_queue_that_is_called_like_its_sink_adopts_it(queue: str) -> None:
    node = _unowned("sink")
    node.broker.users.set_permission("alice", "/", f"^{queue}$", "amq.default", "")
    alice = node.connect_as("alice")
    alice.call(1, "confirm.select")
    stage_queue(alice, queue, 2, "job")
    commit(alice, queue, batch=2, sink="job")
    node.sync()
    assert alice.names() == ["basic.ack"]
    assert _name(node.staging.sinks.by_place["job", ""].owner) == "alice"


# -- handing over ----------------------------------------------------------------------------------


def _give(node: Node, kind: str, to: Owner) -> None:
    if kind == "sink":
        give_sinks(node.staging, "job", claimed(node.staging.sinks, "job", ""), to)
    elif kind == "publisher":
        queue = node.vhost.queues.by_name["q"]
        assert queue.target.publishers is not None
        queue.target.give_publisher(b"job", to)
    else:
        node.stream("s").offsets.give("job", to)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", THINGS)
def test_who_it_is_handed_over_to_goes_on_where_it_was(kind: str, end: str) -> None:
    thing = THINGS[kind]
    node = _node("alice", "bob")
    thing.make(node, node.connect_as("alice"))
    _give(node, kind, node.broker.users.owner("bob"))
    node.sync()
    node = _end(node, end)
    before = thing.state(node)
    for act in thing.acts.values():
        alice = node.connect_as("alice")
        act(alice)
        refused(alice)
    assert thing.state(node) == before
    bob = node.connect_as("bob")
    bob.call(1, "confirm.select")
    assert thing.go_on(node, bob) == thing.went_on


def test_the_consumers_of_a_name_end_when_it_is_anothers() -> None:
    """Those of all partitions too, with all their parts."""
    node = _node("alice", "bob")
    guest = node.connect()
    guest.declare("s", arguments={"x-queue-type": "stream"})
    guest.declare("all", arguments={"x-queue-type": "stream", "x-super-stream-partitions": 2})
    alice = node.connect_as("alice")
    alice.send(method(1, "basic.qos", prefetch_count=10))
    for queue in ("s", "all"):
        arguments = {"x-stream-consumer": "job"}
        values = {"queue": queue, "consumer_tag": queue, "arguments": arguments}
        alice.send(method(1, "basic.consume", **values))
    node.sync()
    assert [got.name for got in alice.take()][-2:] == ["basic.consume-ok"] * 2
    bob = node.broker.users.owner("bob")
    for stream in ("s", "all-0"):
        node.stream(stream).offsets.give("job", bob)
    node.run()
    ended = [got.fields["consumer_tag"] for got in alice.take() if got.name == "basic.cancel"]
    assert ended == ["s", "all"]
    assert not any(node.stream(name).consumers for name in ("s", "all-0", "all-1"))
    assert _name(node.stream("s").offsets.owners["job"]) == "bob"


# -- over sockets ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker with the users alice, bob and mallory, and root, an administrator."""
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        api = Api(process.data_dir / "management.sock")
        for name in ("alice", "bob", "mallory", "root"):
            tags = "administrator" if name == "root" else ""
            assert api.change("PUT", f"/api/users/{name}", {"password": name, "tags": tags}) == 201
            assert api.change("PUT", f"/api/permissions/%2F/{name}", ALL) == 201
        api.close()
        yield process


@pytest.fixture
def api(broker: BrokerProcess) -> Iterator[Api]:
    """Who operates the broker."""
    connection = Api(broker.data_dir / "management.sock")
    yield connection
    connection.close()


@pytest.fixture
def users(broker: BrokerProcess) -> Iterator[dict[str, HttpUser]]:
    """Each user's connection over HTTP on TCP."""
    port = http_port(broker)
    found = {name: HttpUser(port, name, name) for name in ("alice", "bob", "mallory", "root")}
    yield found
    for user in found.values():
        user.http.close()


#: Of each kind: the path of one of a name, and its listing.
PATHS: Final = {
    "sink": ("/api/sinks/%2F/{name}", "/api/sinks/%2F"),
    "publisher": ("/api/publishers/%2F/q/{name}", "/api/publishers/%2F/q"),
    "stream_consumer": ("/api/streams/%2F/s/consumers/{name}", "/api/streams/%2F/s/consumers"),
}
NAME_FIELDS: Final = {"sink": "sink", "publisher": "publisher", "stream_consumer": "name"}


def _use(broker: BrokerProcess, user: str, kind: str, name: str, number: int) -> None:
    """Commit, publish or read under a name.  Raises: a client's error where it is refused."""
    with connect(broker.uri_of(user, user)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_select()
        if kind == "sink":
            body = {"sink": name, "batch": number, "queues": []}
            wish = json.dumps(body).encode()
            channel.publish(wish, routing_key=COMMIT_KEY, mandatory=True)
        elif kind == "publisher":
            headers: dict[str, object] = {"x-publisher": name, "x-publishing-id": number}
            properties = BasicProperties(delivery_mode=2, headers=headers)
            channel.publish(b"m", routing_key="q", properties=properties)
        else:
            channel.qos(prefetch_count=1)
            reads: dict[str, object] = {"x-stream-consumer": name, "x-stream-offset": "first"}
            with channel.consume("s", arguments=reads, inactivity_timeout=0):
                pass


def _owner(api: Api, kind: str, name: str) -> object:
    status, listed = api.ask("GET", PATHS[kind][1])
    assert (status, isinstance(listed, list)) == (200, True)
    assert isinstance(listed, list)
    rows = [row for row in listed if row[NAME_FIELDS[kind]] == name]
    return (rows[0]["owner"], rows[0]["owner_deleted"]) if rows else None


@pytest.mark.parametrize("kind", THINGS)
def test_only_its_owner_and_administrators_change_a_thing_over_http(
    broker: BrokerProcess, api: Api, users: dict[str, HttpUser], kind: str
) -> None:
    """Every route of the table that changes one, by a user with all permissions but no right."""
    name = unique("job")
    path = PATHS[kind][0].format(name=name)
    _use(broker, "alice", kind, name, 1)
    for method_name, where in _changing(kind, name):
        status, text = users["mallory"].ask(method_name, where, {"offset": 0})
        assert (status, name in text, "hand it over" in text) == (403, True, True), where
    assert _owner(api, kind, name) == ("alice", False)
    _use(broker, "alice", kind, name, 2)
    assert users["root"].ask("DELETE", path)[0] == 204
    assert _owner(api, kind, name) is None
    _use(broker, "alice", kind, name, 1)
    assert users["alice"].ask("DELETE", path)[0] == 204
    assert _owner(api, kind, name) is None


def _changing(kind: str, name: str) -> list[tuple[str, str]]:
    """The methods and paths of the routes that change a thing, as a stranger would ask."""
    prefix = PATHS[kind][1].split("%2F")[0]
    found = []
    for route in users_routes():
        path = route.path.replace("{vhost}", "%2F").replace("{user}", "mallory")
        for part in ("sink", "publisher", "consumer"):
            path = path.replace(f"{{{part}}}", name)
        path = path.replace("{queue}", "q").replace("{name}", "s")
        if route.method != "GET" and path.startswith(prefix) and name in path:
            found.append((route.method, path))
    assert len(found) >= 2
    return found


@pytest.mark.parametrize("kind", THINGS)
def test_a_thing_is_handed_over_and_the_log_says_so(
    broker: BrokerProcess, api: Api, users: dict[str, HttpUser], kind: str
) -> None:
    name = unique("job")
    path = PATHS[kind][0].format(name=name)
    _use(broker, "alice", kind, name, 1)
    to_bob = f"{path}/owner/bob"
    assert users["bob"].ask("PUT", to_bob)[0] == 403
    assert users["alice"].ask("PUT", f"{path}/owner/nobody")[0] == 400
    assert users["root"].ask("PUT", f"{path}/owner/nobody")[0] == 404
    # An offer is none yet.
    assert users["alice"].ask("PUT", to_bob)[0] == 202
    assert _owner(api, kind, name) == ("alice", False)
    assert users["mallory"].ask("PUT", to_bob)[0] == 403
    assert users["mallory"].ask("PUT", f"{path}/owner/mallory")[0] == 403
    _use(broker, "alice", kind, name, 2)
    assert users["bob"].ask("PUT", to_bob)[0] == 204
    assert _owner(api, kind, name) == ("bob", False)
    with pytest.raises((AccessRefused, Returned), match="another user"):
        _use(broker, "alice", kind, name, 3)
    _use(broker, "bob", kind, name, 3)
    # An administrator asks nobody.
    assert users["root"].ask("PUT", f"{path}/owner/alice")[0] == 204
    assert api.change("PUT", to_bob) == 204
    assert _owner(api, kind, name) == ("bob", False)
    for user in ("alice", "bob"):
        assert broker.expect_line(f"administrative change: PUT {to_bob} by user '{user}'")


def test_who_takes_a_thing_needs_room_for_it(
    broker: BrokerProcess, api: Api, users: dict[str, HttpUser]
) -> None:
    """Nobody's quota is filled, and no name spoiled, by what others hand over."""
    name = unique("job")
    assert api.change("PUT", "/api/user-limits/bob/max-sinks", {"value": 0}) == 204
    _use(broker, "alice", "sink", name, HIGHEST)
    to_bob = f"/api/sinks/%2F/{name}/owner/bob"
    assert users["alice"].ask("PUT", to_bob)[0] == 202
    status, text = users["bob"].ask("PUT", to_bob)
    assert (status, "max-sinks" in text) == (400, True)
    assert _owner(api, "sink", name) == ("alice", False)
    assert api.change("DELETE", "/api/user-limits/bob/max-sinks") == 204


def test_a_deleted_users_things_are_shown_as_such(broker: BrokerProcess, api: Api) -> None:
    for kind in THINGS:
        user, name = unique("u"), unique("job")
        assert api.change("PUT", f"/api/users/{user}", {"password": user, "tags": ""}) == 201
        assert api.change("PUT", f"/api/permissions/%2F/{user}", ALL) == 201
        _use(broker, user, kind, name, 1)
        assert api.change("DELETE", f"/api/users/{user}") == 204
        assert _owner(api, kind, name) == (user, True)
        assert api.change("PUT", f"/api/users/{user}", {"password": user, "tags": ""}) == 201
        assert api.change("PUT", f"/api/permissions/%2F/{user}", ALL) == 201
        assert _owner(api, kind, name) == (user, True)
        with pytest.raises((AccessRefused, Returned), match="another user"):
            _use(broker, user, kind, name, 2)
        path = PATHS[kind][0].format(name=name)
        assert api.change("PUT", f"{path}/owner/{user}") == 204
        _use(broker, user, kind, name, 2)


def test_nobody_learns_of_a_sink_that_he_may_not_see(
    broker: BrokerProcess, api: Api, users: dict[str, HttpUser]
) -> None:
    """A sink that is there is answered as one that is not."""
    there, not_there = unique("job"), unique("job")
    _use(broker, "alice", "sink", there, 1)
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    assert api.change("PUT", "/api/permissions/%2F/mallory", rights) == 204
    for tail in ("", "/owner/mallory", "?destination=d"):
        asked = "PUT" if "owner" in tail else "DELETE"
        answers = []
        for name in (there, not_there):
            status, text = users["mallory"].ask(asked, f"/api/sinks/%2F/{name}{tail}")
            answers.append((status, text.replace(name, "job")))
        assert answers[0] == answers[1]
        assert answers[0][0] == 403
    assert there not in users["mallory"].ask("GET", "/api/sinks/%2F")[1]
    assert api.change("PUT", "/api/permissions/%2F/mallory", ALL) == 204


def test_the_publishers_of_a_staging_queue_are_its_owners_business(
    broker: BrokerProcess, users: dict[str, HttpUser]
) -> None:
    queue = unique("staged")
    with connect(broker.uri_of("alice", "alice")) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments={**STAGING})
        path = f"/api/publishers/%2F/{queue}"
        found = {name: user.ask("GET", path)[0] for name, user in users.items()}
        assert found == {"alice": 200, "root": 200, "bob": 403, "mallory": 403}
        channel.queue_delete(queue)
