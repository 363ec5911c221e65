"""Whatever is set, cleared and declared in whatever order, each has the policy that counts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.policies.policy import APPLY_TO, make_policy
from leveret.names import Name
from support.node.core import Node

NAMES = ["a", "ab", "b", "s"]
#: What a pattern matches is written beside it, so that the naive judgement shares no code.
PATTERNS = {"a": {"a", "ab"}, "^a$": {"a"}, "": set(NAMES), "^(?!a)": {"b", "s"}, "z": set[str]()}

Steps = list[tuple[str, str, str, int, str, bool]]

STEPS: st.SearchStrategy[Steps] = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "clear", "declare", "delete"]),
        st.sampled_from(NAMES),
        st.sampled_from(sorted(PATTERNS)),
        st.integers(-1, 2),
        st.sampled_from(APPLY_TO),
        st.booleans(),
    ),
    max_size=25,
)


def naive(policies: dict[str, tuple[str, int, str]], name: str, kinds: set[str]) -> str | None:
    """The name of the policy that counts for what is called `name` and is of these kinds."""
    found = [
        (-priority, policy)
        for policy, (pattern, priority, apply_to) in policies.items()
        if apply_to in kinds and name in PATTERNS[pattern]
    ]
    return min(found)[1] if found else None


@settings(deadline=None)
@given(STEPS)
def test_each_has_the_policy_that_counts(steps: Steps) -> None:
    vhost = Node().vhost
    known: dict[bool, dict[str, tuple[str, int, str]]] = {False: {}, True: {}}
    for step, name, pattern, priority, apply_to, operator in steps:
        if step == "set":
            policy = make_policy(
                name, pattern, {"max-length-bytes": 5}, priority, apply_to, operator
            )
            vhost.policies.set(policy)
            known[operator][name] = (pattern, priority, apply_to)
        elif step == "clear" and name in known[operator]:
            vhost.policies.clear(name, operator)
            del known[operator][name]
        elif step == "declare":
            arguments: dict[str, object] = {"x-queue-type": "stream"} if name == "s" else {}
            vhost.queues.declare(None, Name(name), QueueAttributes(True, arguments=arguments))
            vhost.exchanges.declare(Name(name), "fanout", True, False, False, {})
        elif step == "delete":
            vhost.queues.delete(None, Name(name), False, False)
            vhost.exchanges.delete(Name(name), False)
        for queue in vhost.queues.by_name.values():
            kinds = {"all", "queues", "streams" if queue.name == "s" else "classic_queues"}
            for found, operators in ((queue.policy, False), (queue.operator_policy, True)):
                wanted = naive(known[operators], queue.name, kinds)
                assert (found.name if found else None) == wanted
        for exchange in vhost.exchanges.by_name.values():
            if exchange.name in NAMES:
                wanted = naive(known[False], exchange.name, {"all", "exchanges"})
                assert (exchange.policy.name if exchange.policy else None) == wanted
