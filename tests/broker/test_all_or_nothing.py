"""What cannot be kept is refused, and what is refused has changed nothing.

Each of these was taken before, or refused when a part of it was in effect already.  The cases of
all routes and methods are made by `hostile_requests` and `hostile_methods`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.definitions.imports import import_definitions
from leveret.errors import PreconditionFailed
from leveret.limits import DEFINITION_BYTES_MAX, PASSWORD_HASH_BYTES_MAX, TABLE_ENTRIES_MAX
from leveret.management.definitions import read_definitions, write_definitions
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from support.node.core import Node, declare_super_stream
from support.node.exporting import export_definitions
from support.wire.raw_codec import Typed, method

BIG = 99_999_999_999_999_999_999

#: As many entries as a table may hold, less those that the broker adds to a partition's.
MANY: Arguments = {f"a{number}": number for number in range(TABLE_ENTRIES_MAX - 1)}


def bind(node: Node, key: str, arguments: Arguments) -> None:
    node.vhost.exchanges.bind(Name("amq.direct"), Name("q"), True, key, arguments, None)


def declare(node: Node, **arguments: object) -> None:
    node.vhost.queues.declare(None, Name("new"), QueueAttributes(arguments=dict(arguments)))


REFUSED: dict[str, tuple[Callable[[Node], object], str]] = {
    "a limit beyond 64 bits": (
        lambda node: node.broker.users.set_limits("guest", {"max-connections": BIG}),
        "max-connections of a user should be a whole number of at most 9007199254740991",
    ),
    "a bad limit beside a good one": (
        lambda node: node.broker.users.set_limits("guest", {"max-channels": 5, "max-cows": 1}),
        "Unrecognised term 'max-cows' in user-limits",
    ),
    "a limit that is a truth": (
        lambda node: node.broker.users.set_limits("guest", {"max-channels": True}),
        "should be a whole number",
    ),
    "a bad limit of a vhost beside a good one": (
        lambda node: node.vhost.limits.add({"max-queues": 5, "max-connections": BIG}),
        "max-connections should be a number",
    ),
    "a new vhost of a bad type": (
        lambda node: node.broker.put_vhost("v1", {"default_queue_type": "bogus"}, {}),
        "'bogus' is not a queue type",
    ),
    "a new vhost with bad tags": (
        lambda node: node.broker.put_vhost("v1", {"description": "x", "tags": [1]}, {}),
        "tags must be a list of strings",
    ),
    "a new vhost with bad limits": (
        lambda node: node.broker.put_vhost("v1", {}, {"max-queues": "many"}),
        "max-queues should be a number",
    ),
    "a vhost's name of half a character": (
        lambda node: node.broker.add_vhost("\udcff"),
        "an unpaired surrogate",
    ),
    "a topic permission of a bad name": (
        lambda node: node.broker.users.set_topic_permission("guest", "/", "x" * 256, "", ""),
        "at most 255 bytes",
    ),
    "a hash of no end": (
        lambda node: node.broker.users.change_password(
            "guest",
            b"$argon2id$v=19$m=64,t=1,p=1$c2FsdA$" + b"A" * PASSWORD_HASH_BYTES_MAX,
            "leveret_password_hashing_argon2id",
        ),
        "at most 1024 bytes",
    ),
    "a binding key of no end": (lambda node: bind(node, "k" * 256, {}), "at most 255 bytes"),
    "an argument that is no number": (
        lambda node: bind(node, "k", {"x": {"y": [float("nan")]}}),
        "the binding cannot be kept: field 'arguments.x.y': nan is not finite",
    ),
    "a name of an argument that is no text": (
        lambda node: declare(node, **{"\udcff": 1}),
        "the queue cannot be kept: field 'arguments.\\udcff': its name is not Unicode",
    ),
    "a definition that is too large": (
        lambda node: declare(node, large="x" * DEFINITION_BYTES_MAX),
        "the whole definition has",
    ),
    "a part of a super stream with too many arguments": (
        lambda node: declare_super_stream(
            node.vhost, Name("parts"), {**MANY, "x-super-stream-partitions": 3}
        ),
        "at most 4096 entries",
    ),
    "a partition with an infinite argument": (
        lambda node: declare_super_stream(
            node.vhost, Name("parts"), {"x-super-stream-partitions": 3, "x": float("inf")}
        ),
        "inf is not finite",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_change_changes_nothing(node: Node, name: str) -> None:
    change, text = REFUSED[name]
    node.vhost.queues.declare(None, Name("q"), QueueAttributes(True))
    node.sync()
    before = write_definitions(export_definitions(node.broker), "3")
    topics = dict(node.broker.users.topic_permissions)
    group = node.journal.group
    with pytest.raises(PreconditionFailed) as caught:
        change(node)
    assert text in caught.value.text
    assert write_definitions(export_definitions(node.broker), "3") == before
    assert node.broker.users.topic_permissions == topics
    node.sync()
    assert node.journal.group == group, "nothing was journaled"


def test_an_argument_that_is_no_number_closes_the_channel(node: Node) -> None:
    peer = node.connect(1)
    peer.send(method(1, "queue.declare", queue="q", arguments={"x": float("nan")}))
    closed = peer.expect(1, "channel.close")
    assert closed.code == 406
    assert closed.text.startswith("PRECONDITION_FAILED - the queue cannot be kept: field")
    assert "q" not in node.vhost.queues.by_name


def test_values_that_json_has_no_form_for_move_in_a_file(node: Node) -> None:
    peer = node.connect(1)
    arguments = {
        "bytes": b"\xff\x00",
        "no text": Typed("S", b"\xfe"),
        "time": Typed("T", 2**63 + 1),
        "money": Typed("D", (2, 1999)),
        "inside": {"list": [Typed("T", 1), "plain"]},
        "number": 5,
    }
    peer.declare("q", arguments=arguments)
    peer.call(1, "exchange.declare", exchange="e", type="direct", arguments=arguments)
    peer.call(1, "queue.bind", queue="q", exchange="e", routing_key="k", arguments=arguments)
    exported = write_definitions(export_definitions(node.broker), "3")
    other = Node()
    import_definitions(other.broker, read_definitions(exported), b"salt")
    assert write_definitions(export_definitions(other.broker), "3") == exported
    assert other.vhost.queues.by_name["q"].arguments == node.vhost.queues.by_name["q"].arguments


@pytest.mark.parametrize("typed", ["!", "AAAA", "AAAAAUE="])
def test_typed_arguments_that_are_none_are_refused(node: Node, typed: str) -> None:
    queue = {"vhost": "/", "name": "q", "typed_arguments": typed}
    with pytest.raises(PreconditionFailed, match="typed_arguments"):
        import_definitions(node.broker, {"queues": [queue]}, b"salt")
    assert not node.vhost.queues.by_name


def test_an_import_takes_a_true_for_no_one(node: Node) -> None:
    for value in (1, 1.0, True):
        entry = {"name": "p", "value": [value]}
        import_definitions(node.broker, {"global_parameters": [entry]}, b"salt")
        found = node.broker.parameters.global_values["p"]
        assert repr(found) == repr([value])


def test_names_with_line_ends_move_in_a_file(node: Node) -> None:
    node.broker.add_vhost("a\nb")
    node.add_user("c\r\nd")
    exported = export_definitions(node.broker)
    other = Node()
    import_definitions(other.broker, exported, b"salt")
    assert export_definitions(other.broker) == exported


def test_an_import_is_one_record(node: Node) -> None:
    """A crash may keep any part of a group; of a record it keeps all or nothing."""
    node.sync()
    vhosts = [{"name": f"v{number}"} for number in range(5)]
    import_definitions(node.broker, {"vhosts": vhosts}, b"salt")
    group = node.journal.seal()
    assert group is not None
    assert group.records == 1
    node.files.write(group)
    assert len(Node(RecordingDisk(node.image())).broker.vhosts) == 6
