"""Users, permissions, limits and vhosts: what operators may do, and that it survives any stop."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

import pytest

from leveret.broker.users.access import ACCESS_CACHED_MAX, Access
from leveret.broker.users.permissions import CONFIGURE, READ, WRITE
from leveret.broker.users.users import (
    ARGON2,
    MD5,
    SHA256,
    SHA512,
    User,
    Users,
    check_hash,
    hash_password,
)
from leveret.errors import AccessRefused, AmqpError, NotFound, PreconditionFailed
from leveret.limits import ARGON2_KIB_MAX, ARGON2_ROUNDS_MAX, TOPIC_PERMISSIONS_MAX, USER_TAGS_MAX
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node
from support.node.tags import set_tags
from support.wire.raw_codec import method, publish

Restart = Callable[[Node], Node]


def stop(node: Node) -> Node:
    """A restart after a clean stop."""
    return Node(RecordingDisk(node.stop()))


def kill(node: Node) -> Node:
    """A restart after a kill, everything synced."""
    node.sync()
    return Node(RecordingDisk(node.image()))


def checkpoint(node: Node) -> Node:
    """A restart from a snapshot; the journal before it is gone."""
    node.sync()
    node.take_checkpoint()
    node.sync()
    return Node(RecordingDisk(node.image()))


@pytest.fixture(params=[stop, kill, checkpoint])
def restart(request: pytest.FixtureRequest) -> Restart:
    """The ways to start again."""
    found: Restart = request.param
    return found


def state(users: Users) -> object:
    """All that is known of users."""
    return (
        {name: user.definition() for name, user in users.by_name.items()},
        {key: one.definition(*key) for key, one in users.permissions.items()},
        {
            key: {name: one.definition(*key, name) for name, one in of_user.items()}
            for key, of_user in users.topic_permissions.items()
            if of_user
        },
        users.limits,
    )


def fill(node: Node) -> None:
    """Make one of everything, change some and delete some."""
    users = node.broker.users
    for name in ("v", "gone"):
        node.broker.add_vhost(name)
    users.put(User("kept", hash_password(b"salt", b"old"), []))
    users.put(User("deleted", b"", ["administrator"]))
    for user in ("kept", "deleted"):
        for vhost in ("/", "v", "gone"):
            users.set_permission(user, vhost, "^c", "w$", "")
            users.set_topic_permission(user, vhost, "amq.topic", "^{username}", "r")
            users.set_topic_permission(user, vhost, "x", "", ".*")
        users.set_limits(user, {"max-connections": 5})
        users.set_limits(user, {"max-channels": 7})
    users.change_password("kept", hash_password(b"pepp", b"new"), SHA256)
    set_tags(users, "kept", ["monitoring", "free"])
    users.clear_permission("kept", "/")
    users.clear_topic_permission("kept", "/", "x")
    users.clear_topic_permission("kept", "v")
    users.clear_limits("kept", "max-channels")
    node.broker.delete_vhost("gone")
    users.delete("deleted")


# -- what survives


def test_users_survive(restart: Restart) -> None:
    node = Node()
    fill(node)
    again = restart(node)
    assert state(again.broker.users) == state(node.broker.users)
    users = again.broker.users
    assert users.get("kept").tags == ["monitoring", "free"]
    assert users.verify("kept", b"new")
    assert not users.verify("kept", b"old")
    assert users.limits == {"kept": {"max-connections": 5}}
    assert set(users.permissions) == {("guest", "/"), ("kept", "v")}
    assert set(again.broker.vhosts) == {"/", "v"}


def test_users_survive_a_change_after_the_snapshot() -> None:
    node = Node()
    node.broker.users.put(User("deleted", b"", []))
    node.broker.users.set_permission("deleted", "/", "", "", "")
    node.sync()
    node.take_checkpoint()
    fill(node)
    again = kill(node)
    assert state(again.broker.users) == state(node.broker.users)


def test_snapshot_newer_than_the_journal_that_is_replayed_over_it() -> None:
    # Everything happens between the boundary and the hand-over, so the snapshot holds its end.
    node = Node()
    node.sync()
    node.step_checkpoint(1)
    fill(node)
    while not node.step_checkpoint(1):
        node.sync()
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert state(again.broker.users) == state(node.broker.users)
    assert set(again.broker.vhosts) == {"/", "v"}


def test_deleted_vhost_stays_deleted_with_its_messages(restart: Restart) -> None:
    node = Node()
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    for vhost in ("/", "v"):
        peer = node.connect_as("guest", vhost=vhost)
        peer.declare("q")
        peer.call(1, "exchange.declare", exchange="x", type="fanout", durable=True)
        peer.call(1, "queue.bind", queue="q", exchange="x")
        peer.send(publish(1, "x", "", body=b"one", delivery_mode=2))
    node.sync()
    node.broker.delete_vhost("v")
    node.broker.add_vhost("v")
    again = restart(node)
    assert again.orphaned == []
    assert again.classic("q").ready_count() == 1
    assert "x" in again.vhost.exchanges.by_name
    new = again.broker.vhost("v")
    assert len(new.queues.by_name) == 0
    assert "x" not in new.exchanges.by_name
    assert ("guest", "v") not in again.broker.users.permissions


def test_vhost_and_queue_of_the_same_names_made_again_survive(restart: Restart) -> None:
    node = Node()
    for body in (b"old", b"new"):
        node.broker.add_vhost("v")
        node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
        peer = node.connect_as("guest", vhost="v")
        peer.declare("q")
        peer.send(publish(1, "", "q", body=body, delivery_mode=2))
        node.sync()
        if body == b"old":
            node.step_checkpoint(1)
            node.broker.delete_vhost("v")
    while not node.step_checkpoint(1):
        node.sync()
    again = restart(node)
    peer = again.connect_as("guest", vhost="v")
    assert peer.call_get("q").body == b"new"
    peer.send(method(1, "basic.get", queue="q"))
    peer.expect(1, "basic.get-empty")


def test_vhost_deleted_in_a_checkpoint() -> None:
    node = Node()
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    peer = node.connect_as("guest", vhost="v")
    for number in range(5):
        peer.declare(f"q{number}")
        peer.send(publish(1, "", f"q{number}", body=b"x", delivery_mode=2))
    node.sync()
    for _ in range(6):
        node.step_checkpoint(1)
    node.broker.delete_vhost("v")
    while not node.step_checkpoint(1):
        node.sync()
    node.sync()
    again = Node(RecordingDisk(node.image()))
    assert set(again.broker.vhosts) == {"/"}
    assert again.orphaned == []


def test_deleted_vhost_frees_what_it_held(node: Node) -> None:
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    peer = node.connect_as("guest", vhost="v")
    peer.declare("q", arguments={"x-message-ttl": 1000, "x-expires": 5000})
    peer.declare("s", arguments={"x-queue-type": "stream"})
    peer.call(1, "exchange.declare", exchange="x", type="x-recent-history", durable=True)
    peer.call(1, "queue.bind", queue="q", exchange="x")
    delays = {"x-delayed-type": "fanout"}
    values = {"exchange": "d", "type": "x-delayed-message", "arguments": delays}
    peer.call(1, "exchange.declare", durable=True, **values)
    for exchange, key in (("x", ""), ("", "q"), ("", "s"), ("d", "")):
        headers = {"x-delay": 5000}
        peer.send(publish(1, exchange, key, body=b"x" * 100, delivery_mode=2, headers=headers))
    assert node.core.memory.held_messages == 5
    node.sync()
    node.broker.delete_vhost("v")
    node.sync()
    again = kill(node)
    assert again.orphaned == []
    assert set(again.broker.vhosts) == {"/"}
    assert again.core.memory.held_messages == 0
    assert (node.core.memory.held_bytes, node.core.memory.held_messages) == (0, 0)
    node.tick(10_000)
    assert (node.core.memory.held_bytes, node.core.memory.held_messages) == (0, 0)


def test_crash_finds_a_vhost_whole_or_gone() -> None:
    node = Node()
    node.broker.add_vhost("v")
    node.broker.users.set_permission("guest", "v", ".*", ".*", ".*")
    peer = node.connect_as("guest", vhost="v")
    for number in range(3):
        peer.declare(f"q{number}")
    node.sync()
    node.broker.delete_vhost("v")
    node.run()
    node.begin_sync()
    for image in node.crashed(lambda _: 0):
        vhost = Node(RecordingDisk(image)).broker.vhosts.get("v")
        assert vhost is None or len(vhost.queues.by_name) == 3


# -- what may be done


@pytest.mark.parametrize(
    "change",
    [
        lambda users: users.delete("none"),
        lambda users: users.change_password("none", b"", SHA256),
        lambda users: set_tags(users, "none", []),
        lambda users: users.set_permission("none", "/", "", "", ""),
        lambda users: users.set_permission("guest", "none", "", "", ""),
        lambda users: users.clear_permission("guest", "none"),
        lambda users: users.set_topic_permission("guest", "none", "x", "", ""),
        lambda users: users.clear_topic_permission("guest", "/"),
        lambda users: users.clear_topic_permission("guest", "/", "x"),
        lambda users: users.set_limits("none", {}),
        lambda users: users.clear_limits("none"),
    ],
)
def test_what_is_not_there_is_404(node: Node, change: Callable[[Users], None]) -> None:
    before = state(node.broker.users)
    with pytest.raises(NotFound):
        change(node.broker.users)
    assert state(node.broker.users) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda users: users.put(User("", b"", [])),
        lambda users: users.put(User("é" * 128, b"", [])),
        lambda users: users.put(User("u", b"", ["t"] * (USER_TAGS_MAX + 1))),
        lambda users: users.put(User("u", b"", ["t" * 256])),
        lambda users: users.put(User("u", b"short", [])),
        lambda users: users.put(User("u", bytes(36), [], "rabbit_password_hashing_md5")),
        lambda users: users.set_permission("guest", "/", "(", "", ""),
        lambda users: users.set_permission("guest", "/", "", "a{2", "["),
        lambda users: users.set_topic_permission("guest", "/", "x", "", "*"),
        lambda users: users.set_limits("guest", {"max-cows": 1}),
    ],
)
def test_what_cannot_be_is_406_and_changes_nothing(
    node: Node, change: Callable[[Users], None]
) -> None:
    before = state(node.broker.users)
    with pytest.raises(PreconditionFailed):
        change(node.broker.users)
    assert state(node.broker.users) == before


def test_the_longest_name_and_the_most_tags(node: Node) -> None:
    node.broker.users.put(User("é" * 127 + "x", b"", ["t" * 255] * USER_TAGS_MAX))


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_vhost_has_a_short_name(node: Node, name: str) -> None:
    with pytest.raises(PreconditionFailed):
        node.broker.add_vhost(name)
    with pytest.raises(NotFound):
        node.broker.delete_vhost(name)
    node.broker.add_vhost("x" * 255)


def test_one_topic_permission_too_many(node: Node) -> None:
    users = node.broker.users
    for number in range(TOPIC_PERMISSIONS_MAX):
        users.set_topic_permission("guest", "/", f"x{number}", "", "")
    with pytest.raises(PreconditionFailed):
        users.set_topic_permission("guest", "/", "y", "", "")
    users.set_topic_permission("guest", "/", "x0", "a", "b")


# -- passwords


def test_rabbitmqs_hash_of_its_documentation() -> None:
    # rabbitmq.com/docs/passwords: the password test12 under the salt 908dc60a.
    stored = base64.b64decode("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
    user = User("u", stored, [])
    assert user.verify_fast(b"test12")
    assert not user.verify_fast(b"test13")


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [
        (SHA512, hashlib.sha512(b"saltpass").digest()),
        (MD5, hashlib.md5(b"saltpass", usedforsecurity=False).digest()),
    ],
)
def test_rabbitmqs_other_hashes_are_taken_too(algorithm: str, digest: bytes) -> None:
    user = User("u", b"salt" + digest, [], algorithm)
    check_hash(user.algorithm, user.password_hash)
    assert user.verify_fast(b"pass")
    assert not user.verify_fast(b"salt")


def test_an_empty_password_is_nobodys() -> None:
    assert not User("u", hash_password(b"salt", b""), []).verify_fast(b"")
    assert not User("u", b"", []).verify_fast(b"")


def argon2(memory: int = 19_456, rounds: int = 2, lanes: int = 1) -> bytes:
    return f"$argon2id$v=19$m={memory},t={rounds},p={lanes}$c2FsdHNhbHQ$aGFzaA".encode()


@pytest.mark.parametrize(
    "stored", [argon2(), argon2(ARGON2_KIB_MAX, ARGON2_ROUNDS_MAX), argon2(128, 1, 16), b""]
)
def test_argon2_hashes_of_bearable_cost(stored: bytes) -> None:
    check_hash(ARGON2, stored)


@pytest.mark.parametrize(
    "stored",
    [
        argon2(ARGON2_KIB_MAX + 1),
        argon2(rounds=ARGON2_ROUNDS_MAX + 1),
        argon2(rounds=0),
        argon2(lanes=17),
        argon2(7),
        argon2().replace(b"argon2id", b"argon2i"),
        argon2().replace(b"v=19", b"v=16"),
        argon2().replace(b",p=1", b""),
        argon2().replace(b",p=1", b",p=1,p=1,x=1"),
        argon2().replace(b"m=19456", b"m=9999999999"),
        b"$" * 5,
        bytes(36),
    ],
)
def test_argon2_hashes_that_are_refused(stored: bytes) -> None:
    with pytest.raises(PreconditionFailed):
        check_hash(ARGON2, stored)


# -- access


def test_access_remembers_no_more_than_it_may(node: Node) -> None:
    access = Access(node.broker.users, "guest", "/")
    for number in range(ACCESS_CACHED_MAX + 1):
        access.read("queue", Name(f"q{number}"))
    node.broker.users.clear_permission("guest", "/")
    access.forget()
    for number in range(ACCESS_CACHED_MAX + 1):
        with pytest.raises(AccessRefused):
            access.read("queue", Name(f"q{number}"))


@pytest.mark.parametrize("granted", range(8))
def test_access_remembers_each_permission_of_a_name(node: Node, granted: int) -> None:
    kinds = (CONFIGURE, WRITE, READ)
    patterns = ["^q$" if granted & kind else "^$" for kind in kinds]
    node.broker.users.set_permission("guest", "/", *patterns)
    access = Access(node.broker.users, "guest", "/")
    for _ in range(2):
        for kind in kinds:
            assert access.allows(kind, Name("q")) == bool(granted & kind)
            assert not access.allows(kind, Name("other"))
    node.broker.users.clear_permission("guest", "/")
    assert [access.allows(kind, Name("q")) for kind in kinds] == [
        bool(granted & kind) for kind in kinds
    ], "what is remembered holds until it is forgotten"


def test_access_of_a_default_exchange_and_of_a_queue_without_a_name(node: Node) -> None:
    node.broker.users.set_permission("guest", "/", "", "^amq.default$", "")
    access = Access(node.broker.users, "guest", "/")
    access.write("exchange", Name(""))
    access.see("exchange", Name(""))
    with pytest.raises(AccessRefused):
        access.write("queue", Name(""))


def test_no_error_is_ever_without_a_status() -> None:
    pending: list[type[AmqpError]] = [AmqpError]
    while pending:
        kind = pending.pop()
        assert 400 <= kind.http_status < 600
        pending += kind.__subclasses__()
