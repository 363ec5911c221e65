"""Commits that name very many staging queues: checked, repeated, cleaned up slice after slice."""

from __future__ import annotations

import json

import pytest

from leveret.broker.sinks.commit import COMMIT_KEY, read_command
from leveret.broker.sinks.staging import StagingQueue
from leveret.errors import PreconditionFailed
from leveret.limits import STAGING_QUEUES_PER_COMMIT_MAX, TX_COMMITS_MAX
from support.node.core import Node, Peer
from support.node.staged import commit, stage
from support.wire.raw_codec import method, publish

#: Of them a check takes more than a slice.
QUEUES = [f"team-a.staged.{number}" for number in range(700)]

#: A permission that is compared with each character of a name.
PATTERN = r"^team-(a|b)\..*$|^q$|^s$|^amq\.default$"


@pytest.fixture
def node() -> Node:
    node = Node()
    node.add_user("writer", configure=PATTERN, write=PATTERN, read=PATTERN)
    node.connect().declare("q")
    return node


def staged(node: Node, batch: int, mode: str = "confirm.select") -> Peer:
    """A connection that has staged a message in each of the queues."""
    peer = node.connect_as("writer", 1, 2)
    if mode:
        peer.call(1, mode)
    stage_again(peer, batch)
    return peer


def stage_again(peer: Peer, batch: int) -> None:
    """Declare the queues, and stage a message in each."""
    arguments = {"x-staging-sink": "s", "x-staging-batch": batch}
    for name in QUEUES:
        peer.send(method(2, "queue.declare", queue=name, durable=True, arguments=arguments))
        stage(peer, name, b"m")
    peer.node.sync()
    peer.take()


def ask(peer: Peer, batch: int, **more: object) -> None:
    """Have a commit received, with no turn of the core after it."""
    body = {"sink": "s", "batch": batch, "queues": QUEUES, **more}
    data = publish(1, "", COMMIT_KEY, json.dumps(body).encode())
    peer.receive(data + method(2, "basic.qos", prefetch_count=1))


def test_the_rights_to_very_many_queues_are_checked_in_slices(node: Node) -> None:
    peer = staged(node, 1)
    # What is remembered of the patterns is forgotten.
    node.broker.users.set_permission("writer", "/", PATTERN, PATTERN, PATTERN)
    ask(peer, 1)
    assert node.staging.sinks.by_place == {}
    last = node.vhost.queues.by_name[QUEUES[-1]]
    assert isinstance(last, StagingQueue)
    assert not last.sealed
    node.run()
    # What came behind it is done after it.
    peer.flush()
    node.sync()
    assert peer.names() == ["basic.qos-ok", "basic.ack"]
    node.run()
    for _ in QUEUES:
        node.sync()
    assert node.classic("q").ready_count() == len(QUEUES)


def test_rights_that_go_while_they_are_checked_are_missed(node: Node) -> None:
    peer = staged(node, 1)
    ask(peer, 1)
    # Those that were checked first are not allowed any more.
    node.broker.users.set_permission("writer", "/", "^team-a.*[5-9]$|^s$", PATTERN, PATTERN)
    node.sync()
    assert peer.names() == ["basic.qos-ok", "basic.nack"]
    assert node.staging.sinks.by_place == {}
    # No queue is sealed: they may be staged in and committed.
    node.broker.users.set_permission("writer", "/", PATTERN, PATTERN, PATTERN)
    commit(peer, *QUEUES)
    node.sync()
    assert peer.names() == ["basic.ack"]


def test_a_commit_that_nobody_waits_for_unseals_what_it_has_checked(node: Node) -> None:
    peer = staged(node, 1)
    ask(peer, 1)
    peer.lose()
    node.sync()
    other = node.connect_as("writer", 1, 2)
    other.call(1, "confirm.select")
    commit(other, *QUEUES)
    node.sync()
    assert other.names() == ["basic.ack"]


def test_what_is_asked_for_behind_it_finds_it_dropped(node: Node) -> None:
    peer = staged(node, 1)
    commit(peer)
    node.sync()
    ask(peer, 1)
    declare = method(2, "queue.declare", queue=QUEUES[-1], durable=True)
    peer.receive(declare)
    node.sync()
    assert peer.names()[-1] == "queue.declare-ok"


def test_the_commits_of_a_transaction_name_so_many_queues(node: Node) -> None:
    """At the limit, and one past it."""
    commit_of = {"sink": "s", "batch": 0}
    half = [f"q{number}" for number in range(STAGING_QUEUES_PER_COMMIT_MAX // 2)]
    peer = node.connect()
    peer.call(1, "tx.select")
    # A batch that is committed may be named again and again.
    commit(peer)
    peer.call(1, "tx.commit")
    node.sync()
    peer.take()
    for queues in (half, half, []):
        body = json.dumps({**commit_of, "queues": queues}).encode()
        peer.send(publish(1, "", COMMIT_KEY, body))
    node.sync()
    assert peer.names() == []
    peer.send(publish(1, "", COMMIT_KEY, json.dumps({**commit_of, "queues": ["q"]}).encode()))
    node.sync()
    assert peer.names() == ["channel.close"]


def test_a_transaction_has_so_many_commits(node: Node) -> None:
    """At the limit, and one past it."""
    peer = node.connect()
    peer.call(1, "tx.select")
    for number in range(TX_COMMITS_MAX):
        body = json.dumps({"sink": "s", "batch": number, "queues": []}).encode()
        peer.send(publish(1, "", COMMIT_KEY, body))
    peer.call(1, "tx.commit")
    for _ in range(TX_COMMITS_MAX + 1):
        body = json.dumps({"sink": "s", "batch": 0, "queues": []}).encode()
        peer.send(publish(1, "", COMMIT_KEY, body))
    node.sync()
    assert peer.names() == ["channel.close"]


# -- the body --------------------------------------------------------------------------------------

HEAD = b'{"sink": "s", "batch": 1, "queues": ['


@pytest.mark.parametrize("value", [b"[]", b"{}", b"1", b'""'], ids=bytes.decode)
def test_json_of_very_many_values_is_not_read(value: bytes) -> None:
    """It is found before the end, which is none."""
    for body in (
        b"[" + b",".join([value] * (STAGING_QUEUES_PER_COMMIT_MAX + 100)),
        HEAD + b",".join([value] * (STAGING_QUEUES_PER_COMMIT_MAX + 100)),
    ):
        with pytest.raises(PreconditionFailed, match=r"more than 4000 queues"):
            read_command(body)


def test_names_of_queues_may_hold_what_parts_values() -> None:
    names = [f'{number}, [{{"a\\": ",{number}}}], \\' for number in range(1_500)]
    body = json.dumps({"sink": "s", "batch": 1, "queues": names}).encode()
    assert body.count(b",") > STAGING_QUEUES_PER_COMMIT_MAX
    assert read_command(body).queues == names


def test_as_many_queues_as_there_may_be_are_read() -> None:
    names = [str(number) for number in range(STAGING_QUEUES_PER_COMMIT_MAX)]
    body = {"sink": "s", "destination": "d", "batch": 1, "unroutable": "drop", "lower": "fail"}
    found = read_command(json.dumps({**body, "queues": names}).encode())
    assert len(found.queues) == STAGING_QUEUES_PER_COMMIT_MAX
    with pytest.raises(PreconditionFailed, match="more than 4000 queues"):
        read_command(json.dumps({**body, "queues": [*names, "more"]}).encode())
