"""What a policy costs in a vhost of many queues, and what its pattern costs."""

from __future__ import annotations

import re
import tracemalloc

import pytest

from leveret.broker.patterns.patterns import Pattern
from leveret.broker.policies.policy import make_policy
from leveret.broker.scheduler.costs import ROUND, SLICE
from leveret.limits import LETTERS_WAITING_MAX, SLICE_MESSAGES
from support.node.core import Node
from support.wire.raw_codec import method, publish

QUEUES = 5000


@pytest.fixture
def node() -> Node:
    """A broker with many queues, each odd one's name ending with x."""
    node = Node()
    peer = node.connect()
    declares = [
        method(1, "queue.declare", queue=f"q{number}{'x' if number % 2 else ''}", no_wait=True)
        for number in range(QUEUES)
    ]
    peer.send(*declares)
    node.settle()
    assert len(node.vhost.queues.by_name) == QUEUES
    return node


def having(node: Node, name: str | None) -> set[str]:
    """The queues with the policy of that name."""
    return {
        queue.name
        for queue in node.vhost.queues.by_name.values()
        if (None if queue.policy is None else queue.policy.name) == name
    }


def test_a_policy_comes_to_many_queues_turn_after_turn(node: Node) -> None:
    policies = node.vhost.policies
    policies.set(make_policy("all", "^q", {"max-length": 10}))
    assert 0 < len(having(node, "all")) < QUEUES // 2
    peer = node.connect_as("guest")
    peer.send(method(1, "queue.declare", queue="q-new", no_wait=True))
    assert "q-new" in having(node, "all")
    assert len(having(node, "all")) == QUEUES + 1
    policies.clear("all")
    node.settle()
    assert 0 < len(having(node, "all")) < QUEUES
    node.rest()
    assert having(node, "all") == set()


def test_changes_that_come_meanwhile_count_in_the_end(node: Node) -> None:
    policies = node.vhost.policies
    policies.set(make_policy("low", "^q", {"max-length": 10}, 1))
    policies.set(make_policy("high", "x$", {"max-length": 20}, 2))
    policies.set(make_policy("gone", "^q", {"max-length": 30}, 3))
    node.settle()
    policies.clear("gone")
    policies.set(make_policy("op", "x$", {"max-length": 5}, operator=True))
    node.settle()
    policies.set(make_policy("low", "^q[0-9]*x?$", {"max-length": 11}, 1))
    node.rest()
    queues = node.vhost.queues.by_name
    odd = {name for name in queues if name.endswith("x")}
    assert having(node, "high") == odd
    assert having(node, "low") == set(queues) - odd
    assert having(node, "gone") == set()
    for name, queue in queues.items():
        assert (queue.operator_policy is not None) == (name in odd)
    policies.clear("high")
    policies.clear("low")
    policies.clear("op", operator=True)
    node.rest()
    assert having(node, None) == set(queues)
    assert all(queue.operator_policy is None for queue in queues.values())


def test_a_policy_that_is_cleared_meanwhile_comes_to_no_further_queue(node: Node) -> None:
    policies = node.vhost.policies
    for change in (None, make_policy("all", "^q", {"max-length": 11})):
        policies.set(make_policy("all", "^q", {"max-length": 10}))
        first = policies.by_name["all"]
        if change is None:
            policies.clear("all")
        else:
            policies.set(change)
        queues = node.vhost.queues.by_name.values()
        done = sum(queue.policy is first for queue in queues)
        assert 0 < done < QUEUES // 2
        node.settle()
        assert sum(queue.policy is first for queue in queues) <= done
        assert not node.rests()
        node.rest()
        assert having(node, "all") == (set() if change is None else {one.name for one in queues})


def test_queues_that_are_deleted_meanwhile_are_passed_over(node: Node) -> None:
    policies = node.vhost.policies
    policies.set(make_policy("all", "^q", {"max-length": 10}))
    done = having(node, "all")
    for queue in list(node.vhost.queues.by_name.values()):
        node.vhost.queues.drop(queue)
    node.rest()
    assert done
    assert not node.vhost.queues.by_name


def test_a_pattern_that_is_anchored_is_tried_once() -> None:
    anchored, floating = Pattern("^orders[.]"), Pattern("orders[.]")
    name = "x" * 255
    assert not anchored.matches(name)
    assert not floating.matches(name)
    assert anchored.walked <= 4
    assert floating.walked >= 255
    assert anchored.matches("orders.new")
    assert not anchored.matches("old orders.new")
    assert Pattern("^a|b").matches("xb")
    assert Pattern("(^a)?b").matches("xb")


@pytest.mark.parametrize("text", ["$", r"\bnew", r"\Bew", "(?=new)", "(?!o)n", r"\Z"])
def test_what_else_may_stand_at_the_beginning_anchors_nothing(text: str) -> None:
    assert Pattern(text).matches("orders new")


@pytest.mark.parametrize("gets", [False, True])
def test_a_new_length_limit_dead_letters_few_messages_at_a_time(gets: bool) -> None:
    """The others stay in the queue, and so on disk if they were there."""
    node = Node()
    peer = node.connect()
    count = 3 * LETTERS_WAITING_MAX
    peer.declare("dead", durable=False)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    peer.declare("q", durable=False, arguments=arguments)
    for _ in range(8):
        peer.send(publish(1, "", "q", b"m") * (count // 8))
    node.vhost.policies.set(make_policy("short", "^q$", {"max-length": 0}))
    if gets:
        peer.receive(method(1, "basic.get", queue="q"))
    most = 0
    while node.classic("dead").ready_count() < count:
        node.settle()
        most = max(most, int(node.core.scheduler.letters.count()))
    assert SLICE < most <= LETTERS_WAITING_MAX + SLICE_MESSAGES


def test_a_new_length_limit_of_many_queues_drops_a_bounded_number_in_a_turn() -> None:
    node = Node()
    peer = node.connect()
    queues, each = 40, 1_000
    for number in range(queues):
        peer.declare(f"q{number}")
        peer.send(publish(1, "", f"q{number}", b"m") * each)
    node.vhost.policies.set(make_policy("short", "^q", {"max-length": 1}))
    left = waiting = queues * each
    turns = 0
    while left > queues:
        node.settle()
        left = sum(int(node.classic(f"q{number}").ready_count()) for number in range(queues))
        dropped, waiting = waiting - left, left
        assert dropped <= ROUND
        turns += 1
    assert turns >= queues * each // ROUND


def test_lookarounds_count_as_the_walks_that_they_are() -> None:
    pattern = Pattern("(?=b)")
    name = "a" * 200
    assert not pattern.matches(name)
    # Its state, and the one that it walks to, would be two for each place.
    assert pattern.walked >= 10 * len(name)


def test_nothing_is_kept_of_a_match() -> None:
    """What each of very many lookarounds found at each place would be a megabyte."""
    pattern = Pattern("(?=(?=(?=(?=(?=(?=(?=b)))))))|" * 20 + "q")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert not pattern.matches("a" * 200)
        after, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most - before > 400_000
    # Python itself keeps the room of 2,000 tuples for the next ones.
    assert after - before < 200_000


def test_a_match_has_as_many_steps_as_it_is_given() -> None:
    pattern = Pattern("[a]b")
    name = "c" * 100 + "ab"
    assert pattern.matches(name)
    walked = int(pattern.walked)
    assert not pattern.matches(name, walked // 2)
    assert int(pattern.walked) - walked <= walked // 2 + 1
    assert pattern.matches(name)


@pytest.mark.parametrize(
    "text",
    ["orders", "^orders", "^orders\\.", "orders.*", "^a-b_c:/@,\\$", "^", "^.*", "\\.\\-"],
)
def test_a_plain_text_is_searched_for_at_once(text: str) -> None:
    pattern = Pattern(text)
    name = "y" * 255
    for found in (name, f"{name}orders.x", "orders.x", "orders\nx", "a-b_c:/@,$", ".-", ""):
        assert pattern.matches(found) == (re.search(text, found) is not None)
    before = int(pattern.walked)
    pattern.matches(name)
    assert int(pattern.walked) - before <= 5


@pytest.mark.parametrize(
    "text", ["orders\\.*", "orders.", "orders$", "a+", "(a)", "[a]", "a|b", "\\d", "\\\\.*", "é"]
)
def test_what_is_no_plain_text_is_walked(text: str) -> None:
    pattern = Pattern(text)
    for found in ("orders", "ordersx", "orders..", "orders\n", "a", "b", "1", "\\x", "\\", "é", ""):
        assert pattern.matches(found) == (re.search(text, found) is not None)


def test_the_patterns_of_all_policies_look_at_one_name_so_often() -> None:
    """What the limit leaves out does not match."""
    node = Node()
    slow = "(?=(?:(?!" + ".*x?" * 150 + "b)a)*$)" + "z"
    for number in range(8):
        policy = make_policy(f"p{number}", f"{slow}{number}", {"max-length": 1}, apply_to="queues")
        node.vhost.policies.set(policy)
    node.vhost.policies.set(make_policy("last", "^a", {"max-length": 2}))
    peer = node.connect()
    peer.declare("a" * 255, durable=False)
    peer.declare("a", durable=False)
    assert having(node, "last") == {"a"}
