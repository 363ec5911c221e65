"""What the rules draw: few names, so that things meet, and every feature in some mixture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from model.exchange import Binding, Exchange


@dataclass(frozen=True)
class Variant:
    """How a queue is declared."""

    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)


QUEUE_NAMES = ["q1", "q2", "q3", "q4"]
QUEUES = st.sampled_from(QUEUE_NAMES)
KINDS = {"direct1": "direct", "topic1": "topic", "fanout1": "fanout", "headers1": "headers"}
OWN_EXCHANGES = st.sampled_from(sorted(KINDS))
EXCHANGES = st.sampled_from([*sorted(KINDS), "amq.fanout", "amq.topic", "amq.headers"])
KEYS = st.sampled_from(["", "a", "b", "a.b", "a.b.c"])
PATTERNS = st.sampled_from(["", "a", "b", "a.b", "a.*", "*", "#", "a.#", "#.b.#", "*.b.*"])
HEADERS: list[dict[str, Any]] = [
    {}, {"a": 1}, {"a": 1, "b": "x"}, {"b": "x", "x-c": True}, {"a": 2, "b": None},
]  # fmt: skip
MATCHES: list[dict[str, Any]] = [
    {}, {"x-match": "any", "a": 1, "b": "x"}, {"x-match": "all", "a": 1, "b": "x"}, {"a": None},
    {"x-match": "any-with-x", "x-c": True}, {"x-match": "all-with-x", "x-c": True, "b": "x"},
]  # fmt: skip

SIZES = st.sampled_from([0, 10, 10, 10, 100, 5000])
MOMENTS = st.sampled_from([1, 10, 100, 1000])
CONSUMER_PRIORITIES = st.sampled_from([0, 0, 0, 5, -5])

ARGUMENTS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({}, optional={"x-single-active-consumer": st.just(True)}),
)

VARIANTS = st.builds(
    Variant,
    durable=st.sampled_from([True, True, False]),
    auto_delete=st.sampled_from([False, False, False, True]),
    exclusive=st.sampled_from([False, False, False, False, True]),
    arguments=ARGUMENTS,
)

#: Those of the beginning: there for all connections, and for long.
FIRST_VARIANTS = st.builds(Variant, durable=st.sampled_from([True, True, False]),
                           arguments=ARGUMENTS)  # fmt: skip

FIRST_EXCHANGES = [Exchange(name, kind) for name, kind in KINDS.items()]
NEW_EXCHANGES = st.one_of(
    st.builds(
        lambda name, durable, internal, alternate: Exchange(
            name, KINDS[name], durable, not durable, internal, alternate
        ),
        OWN_EXCHANGES,
        st.booleans(),
        st.sampled_from([False, False, False, True]),
        st.sampled_from(["", "", "amq.fanout", "direct1", "topic1", "missing"]),
    ),
    OWN_EXCHANGES.map(lambda name: Exchange(name, KINDS[name])),
)


def _binding(source: str, destination: str, key: str, match: dict[str, Any]) -> Binding:
    arguments = tuple(sorted(match.items(), key=str)) if "headers" in source else ()
    return Binding(source, destination.startswith("q"), destination, key, arguments)


BINDINGS = st.builds(
    _binding, EXCHANGES, st.one_of(QUEUES, QUEUES, OWN_EXCHANGES), PATTERNS,
    st.sampled_from(MATCHES),
)  # fmt: skip

TARGETS = st.one_of(
    st.tuples(st.just(""), QUEUES),
    st.tuples(st.just(""), QUEUES),
    st.tuples(st.just("amq.fanout"), KEYS),
    st.tuples(EXCHANGES, KEYS),
    st.tuples(st.sampled_from(["missing", "", "amq.direct"]), KEYS),
)

PROPERTIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "delivery_mode": st.sampled_from([1, 2, 2, 2]),
        "headers": st.sampled_from(HEADERS),
        "message_id": st.just("m"),
        "timestamp": st.just(1_700_000_000),
    },
)
