"""What is said of a vhost as a whole: description, tags, limits, default type, protection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import VHOST_DESCRIPTION_BYTES_MAX, VHOST_TAGS_MAX
from leveret.names import Name
from support.brokers.broker_restarts import RESTARTS
from support.node.core import Node
from support.wire.raw_codec import method


@pytest.fixture
def vhost(node: Node) -> Vhost:
    return node.vhost


def declare(vhost: Vhost, name: str, **arguments: object) -> str:
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    return vhost.queues.declare(None, Name(name), QueueAttributes(True, arguments=given)).kind


@pytest.mark.parametrize("restarted", RESTARTS)
def test_the_maker_of_a_vhost_gets_all_permissions_in_it(
    node: Node, restarted: Callable[[Node], Node]
) -> None:
    node.broker.put_vhost("made", {}, {}, "guest")
    # To change what is there gives nobody anything.
    node.broker.users.clear_permission("guest", "/")
    node.broker.put_vhost("/", {"description": "changed"}, {}, "guest")
    permissions = restarted(node).broker.users.permissions
    assert [key for key in permissions if key[0] == "guest"] == [("guest", "made")]
    given = permissions["guest", "made"]
    assert (given.configure, given.write, given.read) == (".*", ".*", ".*")


# -- limits ----------------------------------------------------------------------------------------


def test_b73_a_vhost_holds_no_more_queues_than_its_limit(vhost: Vhost) -> None:
    vhost.limits.set({"max-queues": 2})
    declare(vhost, "a")
    declare(vhost, "b")
    with pytest.raises(PreconditionFailed) as caught:
        declare(vhost, "c")
    text = "cannot declare queue 'c': queue limit in vhost '/' (2) is reached"
    assert caught.value.reply_text == f"PRECONDITION_FAILED - {text}"
    declare(vhost, "a")
    vhost.limits.add({"max-queues": 3})
    declare(vhost, "c")
    vhost.limits.set({"max-queues": -1})
    declare(vhost, "d")
    vhost.limits.set({"max-queues": 0})
    with pytest.raises(PreconditionFailed, match=r"\(0\) is reached"):
        declare(vhost, "e")
    vhost.limits.clear("max-queues")
    vhost.limits.clear("max-queues")
    declare(vhost, "e")


def test_the_queues_named_by_the_broker_count_too(node: Node) -> None:
    node.vhost.limits.set({"max-queues": 0})
    peer = node.connect()
    peer.send(method(1, "queue.declare", queue="", exclusive=True))
    closed = peer.expect(1, "channel.close")
    assert closed.code == 406
    assert "queue limit in vhost '/' (0) is reached" in closed.text


def test_limits_are_replaced_or_set_one_by_one(vhost: Vhost) -> None:
    vhost.limits.set({"max-queues": 5, "max-connections": 9})
    vhost.limits.set({"max-queues": 6})
    assert vhost.limits.by_name == {"max-queues": 6}
    vhost.limits.add({"max-connections": 7})
    assert vhost.limits.by_name == {"max-queues": 6, "max-connections": 7}


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"max-queues": "a"}, "max-queues should be a number, actually was 'a'"),
        ({"max-queues": 1.5}, "actually was 1.5"),
        ({"max-queues": True}, "actually was True"),
        ({"max-queues": 2**60}, "max-queues should be a number"),
        ({"x": 1}, "Unrecognised term 'x' in limits"),
    ],
)
def test_bad_limits_are_refused(vhost: Vhost, limits: Arguments, text: str) -> None:
    with pytest.raises(PreconditionFailed, match=text):
        vhost.limits.set(limits)
    assert vhost.limits.by_name == {}


# -- the default queue type ------------------------------------------------------------------------


def test_a_default_type_is_for_queues_that_name_none(vhost: Vhost) -> None:
    vhost.metadata.set({"default_queue_type": "quorum"})
    assert declare(vhost, "q") == "quorum"
    assert vhost.queues.by_name["q"].arguments == {"x-queue-type": "quorum"}, "as RabbitMQ shows it"
    assert declare(vhost, "empty", x_queue_type="") == "quorum", "an empty type is none"
    assert declare(vhost, "c", x_queue_type="classic") == "classic"
    assert declare(vhost, "q") == "quorum"
    assert declare(vhost, "q", x_queue_type="quorum") == "quorum"
    vhost.metadata.set({"default_queue_type": "stream"})
    assert declare(vhost, "s") == "stream"
    assert declare(vhost, "q") == "quorum", "an older queue is declared again as it is"
    vhost.metadata.set({"default_queue_type": ""})
    assert declare(vhost, "plain") == "classic"


@pytest.mark.parametrize(
    ("durable", "exclusive", "auto_delete"),
    [(False, False, False), (True, True, False), (True, False, True)],
)
def test_a_queue_that_could_not_be_of_it_stays_classic(
    vhost: Vhost, durable: bool, exclusive: bool, auto_delete: bool
) -> None:
    vhost.metadata.set({"default_queue_type": "quorum"})
    queue = vhost.queues.declare(None, Name("q"), QueueAttributes(durable, exclusive, auto_delete))
    assert (queue.kind, queue.arguments) == ("classic", {})


# -- metadata --------------------------------------------------------------------------------------


def test_metadata_is_shown_as_it_was_set(vhost: Vhost) -> None:
    assert vhost.metadata.fields() == {"description": "", "tags": []}
    vhost.metadata.set({"description": "the shop", "tags": "eu, prod", "unknown": 1})
    vhost.metadata.set({"strict_keys": True, "protected_from_deletion": True})
    vhost.metadata.set({"default_queue_type": "rabbit_quorum_queue"})
    assert vhost.metadata.fields() == {
        "description": "the shop",
        "tags": ["eu", "prod"],
        "default_queue_type": "quorum",
        "strict_keys": True,
        "protected_from_deletion": True,
    }
    assert vhost.strict_keys
    vhost.metadata.set({"default_queue_type": None, "strict_keys": False, "tags": []})
    assert vhost.metadata.fields() == {
        "description": "the shop",
        "tags": [],
        "protected_from_deletion": True,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"description": 5},
        {"description": "d" * (VHOST_DESCRIPTION_BYTES_MAX + 1)},
        {"tags": 5},
        {"tags": [5]},
        {"tags": [""]},
        {"tags": ["t" * 256]},
        {"tags": ["t"] * (VHOST_TAGS_MAX + 1)},
        {"default_queue_type": "bag"},
        {"default_queue_type": 5},
        {"strict_keys": "yes"},
        {"protected_from_deletion": 1},
    ],
)
def test_bad_metadata_is_refused_as_a_whole(vhost: Vhost, changes: Arguments) -> None:
    with pytest.raises(PreconditionFailed):
        vhost.metadata.set({"description": "new", **changes})
    assert vhost.metadata.fields() == {"description": "", "tags": []}


def test_metadata_has_limits(vhost: Vhost) -> None:
    tags = ["t" * 255] * VHOST_TAGS_MAX
    vhost.metadata.set({"description": "d" * VHOST_DESCRIPTION_BYTES_MAX, "tags": tags})
    assert vhost.metadata.tags == tags


def test_a_protected_vhost_is_not_deleted(node: Node) -> None:
    shop = node.broker.add_vhost("shop")
    shop.metadata.set({"protected_from_deletion": True})
    with pytest.raises(PreconditionFailed, match="vhost 'shop' is protected from deletion"):
        node.broker.delete_vhost("shop")
    assert node.broker.vhosts["shop"] is shop
    shop.metadata.set({"protected_from_deletion": False})
    node.broker.delete_vhost("shop")
    with pytest.raises(NotFound):
        node.broker.delete_vhost("shop")


# -- a restart -------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", RESTARTS)
def test_what_is_said_of_a_vhost_survives(node: Node, restart: Callable[[Node], Node]) -> None:
    shop = node.broker.add_vhost("shop")
    shop.metadata.set({"description": "old", "tags": ["a"], "default_queue_type": "stream"})
    shop.metadata.set({"description": "new", "default_queue_type": "quorum", "strict_keys": True})
    shop.metadata.set({"protected_from_deletion": True})
    shop.limits.set({"max-queues": 5, "max-connections": 3})
    shop.limits.set({"max-queues": 5})
    before = shop.metadata.record()
    shop = restart(node).broker.vhosts["shop"]
    assert shop.metadata.record() == before
    assert (shop.strict_keys, shop.metadata.protected) == (True, True)
    assert declare(shop, "q") == "quorum"


@pytest.mark.parametrize("restart", RESTARTS)
def test_nothing_of_a_deleted_vhost_is_left_for_a_new_one(
    node: Node, restart: Callable[[Node], Node]
) -> None:
    shop = node.broker.add_vhost("shop")
    shop.metadata.set({"description": "old"})
    shop.limits.set({"max-queues": 5})
    node.broker.delete_vhost("shop")
    node.broker.add_vhost("shop")
    assert restart(node).broker.vhosts["shop"].metadata.record() == {
        "name": "shop",
        "metadata": {"description": "", "tags": []},
        "limits": {},
    }
