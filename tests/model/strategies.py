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
#: Those that only clients publish to.
ENTRIES = {"delayed1": "x-delayed-message", "history1": "x-recent-history"}
ALL_KINDS = KINDS | ENTRIES
OWN_EXCHANGES = st.sampled_from(sorted(ALL_KINDS))
INNER_EXCHANGES = st.sampled_from(sorted(KINDS))
EXCHANGES = st.sampled_from([*sorted(ALL_KINDS), "amq.fanout", "amq.topic", "amq.headers"])
KEYS = st.sampled_from(["", "a", "b", "a.b", "a.b.c"])
PATTERNS = st.sampled_from(["", "a", "b", "a.b", "a.*", "*", "#", "a.#", "#.b.#", "*.b.*"])
HEADERS: list[dict[str, Any]] = [
    {}, {"a": 1}, {"a": 1, "b": "x"}, {"b": "x", "x-c": True}, {"a": 2, "b": None},
    {"x-death": "mine", "x-first-death-queue": "mine"},
    {"x-delay": 20},
    {"CC": ["q2", "a.b"]}, {"BCC": ["q3"]}, {"CC": ["q1"], "BCC": ["q4", "a"], "a": 1},
]  # fmt: skip
MATCHES: list[dict[str, Any]] = [
    {}, {"x-match": "any", "a": 1, "b": "x"}, {"x-match": "all", "a": 1, "b": "x"}, {"a": None},
    {"x-match": "any-with-x", "x-c": True}, {"x-match": "all-with-x", "x-c": True, "b": "x"},
]  # fmt: skip

SIZES = st.sampled_from([0, 10, 10, 10, 100, 5000])
MOMENTS = st.sampled_from([1, 10, 100, 1000])
CONSUMER_PRIORITIES = st.sampled_from([0, 0, 0, 5, -5])

#: Rare ones by themselves, so that most queues mix two or three.
WISHES: dict[str, st.SearchStrategy[Any]] = {
    "x-message-ttl": st.sampled_from([0, 40, 110, 1300]),
    "x-expires": st.sampled_from([70, 900, 2100]),
    "x-max-length": st.sampled_from([0, 1, 2, 3]),
    "x-max-length-bytes": st.sampled_from([0, 20, 30, 200]),
    "x-overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
    "x-max-priority": st.sampled_from([1, 3, 10]),
    "x-single-active-consumer": st.just(True),
    "x-delivery-limit": st.sampled_from([0, 1, 2]),
}
#: What takes more to show is wished for more often.
OFTEN = [*sorted(WISHES), "x-delivery-limit", "x-overflow", *["x-message-ttl"] * 4]
DEAD_LETTER_EXCHANGES = st.sampled_from(["", "", "", "", "fanout1", "topic1", "direct1", "missing"])
DEAD_LETTER_KEYS = st.sampled_from(["q1", "q2", "q3", "q4", "a.b", None])


def _arguments(wishes: list[str], exchange: str | None, key: str | None) -> Any:
    if "x-overflow" in wishes and "x-max-length-bytes" not in wishes:
        wishes = [*wishes, "x-max-length"]
    drawn = {name: WISHES[name] for name in wishes}
    if exchange is not None:
        drawn["x-dead-letter-exchange"] = st.just(exchange)
        if key is not None:
            drawn["x-dead-letter-routing-key"] = st.just(key)
    return st.fixed_dictionaries(drawn)


ARGUMENTS: st.SearchStrategy[dict[str, Any]] = st.builds(
    _arguments,
    st.one_of(st.just([]), st.lists(st.sampled_from(OFTEN), max_size=3)),
    st.one_of(DEAD_LETTER_EXCHANGES, DEAD_LETTER_EXCHANGES, st.none()),
    DEAD_LETTER_KEYS,
).flatmap(lambda drawn: drawn)

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

FIRST_EXCHANGES = [Exchange(name, kind) for name, kind in ALL_KINDS.items()]
NEW_EXCHANGES = st.one_of(
    st.builds(
        lambda name, durable, internal, alternate: Exchange(
            name, ALL_KINDS[name], durable, not durable, internal, alternate
        ),
        OWN_EXCHANGES,
        st.booleans(),
        st.sampled_from([False, False, False, True]),
        st.sampled_from(["", "", "amq.fanout", "direct1", "topic1", "missing"]),
    ),
    OWN_EXCHANGES.map(lambda name: Exchange(name, ALL_KINDS[name])),
)


def _binding(source: str, destination: str, key: str, match: dict[str, Any]) -> Binding:
    arguments = tuple(sorted(match.items(), key=str)) if "headers" in source else ()
    return Binding(source, destination.startswith("q"), destination, key, arguments)


BINDINGS = st.builds(
    _binding, EXCHANGES, st.one_of(QUEUES, QUEUES, INNER_EXCHANGES), PATTERNS,
    st.sampled_from(MATCHES),
)  # fmt: skip

TARGETS = st.one_of(
    st.tuples(st.just(""), QUEUES),
    st.tuples(st.just(""), QUEUES),
    st.tuples(st.just("amq.fanout"), KEYS),
    st.tuples(EXCHANGES, KEYS),
    st.tuples(st.just("history1"), KEYS),
    st.tuples(st.sampled_from(["missing", "amq.direct"]), KEYS),
)

PROPERTIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "delivery_mode": st.sampled_from([1, 2, 2, 2]),
        "headers": st.sampled_from(HEADERS),
        "expiration": st.sampled_from(["0", "30", "75", "75", "1000", "60000"]),
        "priority": st.sampled_from([0, 1, 2, 3, 9, 200]),
        "message_id": st.just("m"),
        "timestamp": st.just(1_700_000_000),
    },
)

#: With an `expiration` too, which counts from the end of the delay.
DELAYS = st.sampled_from([0, 15, 60, 60, 700])
