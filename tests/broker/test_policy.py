"""Policies in a vhost: who has which, at once and after a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.policies.policy import APPLY_TO, effective_definition, make_policy
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import NotFound, PreconditionFailed
from leveret.names import Name
from support.brokers.broker_restarts import RESTARTS, checkpointed, killed
from support.node.core import Node
from support.node.idle_queues import IdleQueue


class Configured(IdleQueue):
    """A queue that keeps what it was told to follow."""

    told: dict[str, object] | None = None

    def configure(self, merged: dict[str, object]) -> None:
        self.told = merged


@pytest.fixture
def vhost(node: Node) -> Vhost:
    return node.vhost


def declare(vhost: Vhost, name: str, **arguments: object) -> None:
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    vhost.queues.declare(None, Name(name), QueueAttributes(True, arguments=given))


def put(vhost: Vhost, name: str, pattern: str, priority: int = 0, to: str = "all") -> None:
    vhost.policies.set(make_policy(name, pattern, {"max-length": 5}, priority, to))


def policy_of(vhost: Vhost, name: str) -> str:
    policy = vhost.queues.by_name[name].policy
    return policy.name if policy is not None else ""


def test_a_policy_reaches_queues_that_are_there_and_new_ones(vhost: Vhost) -> None:
    declare(vhost, "orders")
    put(vhost, "p", "^orders")
    declare(vhost, "orders.eu")
    declare(vhost, "tasks")
    assert [policy_of(vhost, name) for name in vhost.queues.by_name] == ["p", "p", ""]
    vhost.policies.clear("p")
    assert [policy_of(vhost, name) for name in vhost.queues.by_name] == ["", "", ""]


def test_the_highest_priority_counts_then_the_first_name(vhost: Vhost) -> None:
    declare(vhost, "q")
    put(vhost, "m", "q", 1)
    put(vhost, "z", "q", 1)
    assert policy_of(vhost, "q") == "m"
    put(vhost, "a", "q", 1)
    assert policy_of(vhost, "q") == "a"
    put(vhost, "top", "q", 9)
    assert policy_of(vhost, "q") == "top"
    put(vhost, "top", "q", -9)
    assert policy_of(vhost, "q") == "a"
    vhost.policies.clear("a")
    assert policy_of(vhost, "q") == "m"
    put(vhost, "m", "other", 1)
    assert policy_of(vhost, "q") == "z"
    declare(vhost, "q2")
    assert policy_of(vhost, "q2") == "z"


@pytest.mark.parametrize("apply_to", APPLY_TO)
def test_what_it_applies_to(vhost: Vhost, apply_to: str) -> None:
    for kind in ("classic", "quorum", "stream"):
        vhost.queues.declare(
            None, Name(kind), QueueAttributes(True, arguments={"x-queue-type": kind})
        )
    vhost.exchanges.declare(Name("e"), "fanout", True, False, False, {})
    vhost.policies.set(make_policy("p", ".*", {"max-length-bytes": 5}, 0, apply_to))
    found = {name for name in vhost.queues.by_name if policy_of(vhost, name)}
    found |= {
        name for name, exchange in vhost.exchanges.by_name.items() if exchange.policy is not None
    }
    kinds = {"classic_queues": {"classic"}, "quorum_queues": {"quorum"}, "streams": {"stream"}}
    queues = {"classic", "quorum", "stream"}
    exchanges = {name for name in vhost.exchanges.by_name if name}
    wanted = {"all": queues | exchanges, "queues": queues, "exchanges": exchanges} | kinds
    assert found == wanted[apply_to]


def test_a_queue_of_a_type_that_lacks_a_key_does_not_have_the_policy(vhost: Vhost) -> None:
    vhost.queues.declare(
        None, Name("s"), QueueAttributes(True, arguments={"x-queue-type": "stream"})
    )
    declare(vhost, "q")
    put(vhost, "p", ".*")
    assert (policy_of(vhost, "s"), policy_of(vhost, "q")) == ("", "p")


def test_a_queue_is_told_the_merged_arguments(vhost: Vhost) -> None:
    arguments: dict[str, object] = {"x-max-length": 7, "x-max-priority": 3}
    queue = Configured(vhost.core, 99, "q", QueueAttributes(True, arguments=arguments))
    vhost.queues.by_name["q"] = queue
    put(vhost, "p", "q")
    assert queue.told == {"x-max-length": 5, "x-max-priority": 3}
    vhost.policies.set(make_policy("o", "q", {"max-length": 2}, operator=True))
    assert queue.told == {"x-max-length": 2, "x-max-priority": 3}
    vhost.policies.clear("p")
    assert queue.told == {"x-max-length": 2, "x-max-priority": 3}
    vhost.policies.clear("o", operator=True)
    assert queue.told == arguments
    assert queue.arguments == {"x-max-length": 7, "x-max-priority": 3}


def test_an_alternate_exchange_by_policy_routes(vhost: Vhost) -> None:
    declare(vhost, "lost")
    vhost.exchanges.declare(Name("ae"), "fanout", True, False, False, {})
    vhost.exchanges.bind(Name("ae"), Name("lost"), True, "", {}, None)
    source = vhost.exchanges.existing(Name("amq.topic"))
    assert vhost.route(source, "k", b"").targets == []
    revision = vhost.revision
    vhost.policies.set(make_policy("p", r"^amq\.topic$", {"alternate-exchange": "ae"}))
    assert vhost.revision > revision, "routes that were remembered are dead"
    assert [queue.name for queue in vhost.route(source, "k", b"").targets] == ["lost"]
    vhost.exchanges.declare(Name("new"), "direct", True, False, False, {})
    vhost.policies.set(make_policy("p", "^new", {"alternate-exchange": "ae"}))
    assert vhost.route(source, "k", b"").targets == []
    vhost.exchanges.declare(Name("new2"), "direct", True, False, False, {})
    assert vhost.route(vhost.exchanges.existing(Name("new2")), "k", b"").targets == [
        vhost.queues.by_name["lost"].target
    ]
    vhost.policies.clear("p")
    assert vhost.route(vhost.exchanges.existing(Name("new2")), "k", b"").targets == []


def test_what_is_not_there_cannot_be_cleared(vhost: Vhost) -> None:
    with pytest.raises(NotFound, match="no policy 'nothing'"):
        vhost.policies.clear("nothing")
    with pytest.raises(NotFound, match="no operator policy 'nothing'"):
        vhost.policies.clear("nothing", operator=True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("", ".*", {"max-length": 1}), "name has 1 to 255 bytes"),
        (("n" * 256, ".*", {"max-length": 1}), "name has 1 to 255 bytes"),
        (("p", "(", {"max-length": 1}), "not a valid regular expression"),
        (("p", ".*", {}), "no policy provided"),
        (("p", ".*", {"max-length": 1}, 0, "foo"), "apply-to 'foo' unrecognised"),
        (("p", ".*", {"max-length": 1}, 2**60), "priority"),
        (("p", ".*", {"overflow": "drop-head", "max-age": "1D"}, 0, "all", True), "max-age"),
    ],
)
def test_what_is_no_policy_is_refused(arguments: tuple[object, ...], text: str) -> None:
    with pytest.raises(PreconditionFailed, match=text):
        make_policy(*arguments)  # type: ignore[arg-type]  # the wrong ones, too


def test_policies_have_a_limit(vhost: Vhost) -> None:
    vhost.policies.count_max = 2
    put(vhost, "a", "x")
    put(vhost, "b", "x")
    put(vhost, "a", "y")
    with pytest.raises(PreconditionFailed, match="at most 2 policies"):
        put(vhost, "c", "x")
    vhost.policies.set(make_policy("c", "x", {"expires": 5}, operator=True))


def test_both_policies_are_shown_as_one(vhost: Vhost) -> None:
    policy = make_policy("p", ".*", {"max-length": 5, "overflow": "drop-head"})
    operator = make_policy("o", ".*", {"max-length": 2}, operator=True)
    assert effective_definition(policy, operator) == {"max-length": 2, "overflow": "drop-head"}
    assert effective_definition(None, operator) == {"max-length": 2}
    assert effective_definition(policy, None) == policy.definition
    assert effective_definition(None, None) == {}


# -- a restart -------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", RESTARTS)
def test_policies_survive(node: Node, again: Callable[[Node], Node]) -> None:
    vhost = node.vhost
    declare(vhost, "orders")
    vhost.exchanges.declare(Name("ae"), "fanout", True, False, False, {})
    put(vhost, "gone", "^orders", 7)
    put(vhost, "p", "^or", 3, "queues")
    vhost.policies.clear("gone")
    vhost.policies.set(make_policy("ex", "topic$", {"alternate-exchange": "ae"}))
    vhost.policies.set(make_policy("gone", "orders", {"expires": 5}, operator=True))
    vhost.policies.set(make_policy("o", "orders", {"max-length": 2}, operator=True))
    vhost.policies.clear("gone", operator=True)
    before = [
        p.record("/")
        for p in (*vhost.policies.by_name.values(), *vhost.policies.operator_by_name.values())
    ]
    vhost = again(node).vhost
    found = [
        p.record("/")
        for p in (*vhost.policies.by_name.values(), *vhost.policies.operator_by_name.values())
    ]
    assert found == before
    queue = vhost.queues.by_name["orders"]
    assert queue.policy is vhost.policies.by_name["p"]
    assert queue.operator_policy is vhost.policies.operator_by_name["o"]
    assert vhost.exchanges.existing(Name("amq.topic")).alternate == "ae"
    declare(vhost, "order")
    assert policy_of(vhost, "order") == "p"


def test_a_pattern_that_is_none_any_more_is_kept_and_matches_nothing(node: Node) -> None:
    node.journal.define(
        "policy",
        {
            "vhost": "/",
            "name": "old",
            "pattern": "(",
            "apply_to": "all",
            "priority": 1,
            "definition": {"max-length": 1},
        },
    )
    vhost = checkpointed(killed(node)).vhost
    assert vhost.policies.by_name["old"].pattern == "("
    declare(vhost, "(")
    assert policy_of(vhost, "(") == ""
