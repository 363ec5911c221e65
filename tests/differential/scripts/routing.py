"""Which message goes where: direct, topic and headers exchanges, and those of plugins."""

from __future__ import annotations

from typing import Any

from differential.script import script
from differential.stage import Channel, Stage
from support.wire.raw import Typed

#: Keys and patterns that meet at the borders of words.
KEYS = ("", ".", "a", "a.", ".a", "a.b", "a..b", "a.b.c", "b", "a.b.c.d", "#", "*", "a.*", "..")
PATTERNS = (
    "", "#", "*", "a", "a.#", "a.*", "#.a", "*.a", "#.#", "*.#", "#.*", "*.*", "a.#.c", "a.*.c",
    "#.b.#", "a.", ".a", "a..b", "a.#.#", "*.b.*", ".", "#.", "a#", "a*.b",
)  # fmt: skip


def where(s: Stage, a: Channel, exchange: str, name: str, patterns: dict[str, Any]) -> None:
    """Bind a queue by each pattern's name."""
    for index, (key, arguments) in enumerate(patterns.items()):
        queue = s.name(f"{name}{index}")
        a.declare(queue, exclusive=True)
        a.bind(queue, exchange, key, arguments=arguments)


@script(39)
def topic(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "topic", auto_delete=True)
    where(s, a, s.name("x"), "q", {pattern: {} for pattern in PATTERNS})
    for key in KEYS:
        a.publish(s.name("x"), key, f"{key!r}")
    for index in range(len(PATTERNS)):
        a.bodies(s.name(f"q{index}"))


@script(39)
def topic_unbind(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "topic")
    a.declare(s.name("q"), exclusive=True)
    for key in ("a.#", "a.*.c", "#"):
        a.bind(s.name("q"), s.name("x"), key)
    for key in ("#", "a.#", "a.*.c"):
        a.call("queue.unbind", queue=s.name("q"), exchange=s.name("x"), routing_key=key)
        a.publish(s.name("x"), "a.b.c", key)
        a.drain(s.name("q"))
    a.call("exchange.delete", exchange=s.name("x"))


@script(39)
def direct_and_fanout(s: Stage) -> None:
    a = s.channel()
    for kind in ("direct", "fanout"):
        a.exchange(s.name(kind), kind, auto_delete=True)
        where(s, a, s.name(kind), kind, {key: {} for key in ("", "a", "A", "a.b", "#")})
        for key in ("", "a", "A", "a.b", "x"):
            a.publish(s.name(kind), key, f"{key!r}")
        for index in range(5):
            a.bodies(s.name(f"{kind}{index}"))


#: One value of each type, and near ones of other types.
VALUES: dict[str, Any] = {
    "true": True, "one": 1, "b1": Typed("b", 1), "B1": Typed("B", 1), "s1": Typed("s", 1),
    "u1": Typed("u", 1), "i1": Typed("i", 1), "l1": Typed("l", 1), "d1": 1.0,
    "f1": Typed("f", 1.0), "S1": "1", "x1": b"1", "D1": Typed("D", (0, 1)), "T1": Typed("T", 1),
    "void": None, "list": [1], "list-b": [Typed("b", 1)], "table": {"a": 1},
    "table-l": {"a": Typed("l", 1)}, "empty": "", "false": False,
}  # fmt: skip


@script(40)
def headers_values(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "headers", auto_delete=True)
    for name, value in VALUES.items():
        queue = s.name(f"q-{name}")
        a.declare(queue, exclusive=True)
        a.bind(queue, s.name("x"), arguments={"x-match": "all", "h": value})
    for name, value in VALUES.items():
        a.publish(s.name("x"), "", name, headers={"h": value})
    for name in VALUES:
        a.bodies(s.name(f"q-{name}"))


#: Arguments of bindings to a headers exchange.
MATCHES: tuple[dict[str, Any], ...] = (
    {}, {"x-match": "all"}, {"x-match": "any"},
    {"a": 1, "b": 2}, {"x-match": "all", "a": 1, "b": 2}, {"x-match": "any", "a": 1, "b": 2},
    {"x-match": "any", "a": 1, "x-h": 3}, {"x-match": "all", "x-h": 3},
    {"x-match": "any", "x-h": 3}, {"x-match": "all-with-x", "a": 1, "x-h": 3},
    {"x-match": "any-with-x", "a": 9, "x-h": 3}, {"x-match": "all-with-x"},
    {"x-match": "any-with-x"}, {"x-match": "all", "a": None}, {"x-match": "any", "a": None, "b": 9},
)  # fmt: skip


@script(40)
def headers_matches(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "headers", auto_delete=True)
    for index, arguments in enumerate(MATCHES):
        a.declare(s.name(f"q{index}"), exclusive=True)
        a.bind(s.name(f"q{index}"), s.name("x"), "ignored", arguments=arguments)
    messages: dict[str, dict[str, Any]] = {
        "none": {}, "a": {"a": 1}, "ab": {"a": 1, "b": 2}, "a9": {"a": 9}, "x": {"x-h": 3},
        "ax": {"a": 1, "x-h": 3}, "more": {"a": 1, "b": 2, "c": 3, "x-h": 3, "x-i": 4},
    }  # fmt: skip
    for name, headers in messages.items():
        a.publish(s.name("x"), "", name, headers=headers)
    a.publish(s.name("x"), "", "no headers at all")
    for index in range(len(MATCHES)):
        a.bodies(s.name(f"q{index}"))


@script(40)
def headers_match_invalid(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    for value in ("most", "", 5, None, True, "ALL"):
        a.declare(s.name("q"), exclusive=True)
        a.bind(s.name("q"), "amq.headers", "", arguments={"x-match": value})


@script(36)
def consistent_hash(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "x-consistent-hash")
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), s.name("x"), "10")
    for body in "123":
        a.publish(s.name("x"), body, body)
    a.drain(s.name("q"))
    for weight in ("abc", "-1", "0", "1.5", ""):
        a.declare(s.name("q"), exclusive=True)
        a.bind(s.name("q"), s.name("x"), weight)
    a.call("exchange.delete", exchange=s.name("x"))


@script(36)
def consistent_hash_arguments(s: Stage) -> None:
    a = s.channel()
    for arguments in (
        {"hash-header": "h"}, {"hash-header": 5}, {"hash-property": "message_id"},
        {"hash-property": "correlation_id"}, {"hash-property": "timestamp"},
        {"hash-property": "app_id"}, {"hash-header": "h", "hash-property": "message_id"},
    ):  # fmt: skip
        a.exchange(s.name("x"), "x-consistent-hash", arguments=arguments)
        a.declare(s.name("q"), exclusive=True)
        a.bind(s.name("q"), s.name("x"), "1")
        a.publish(s.name("x"), "k", "with", headers={"h": "v"}, message_id="m", timestamp=5)
        a.publish(s.name("x"), "k", "without")
        a.drain(s.name("q"))
        a.call("exchange.delete", exchange=s.name("x"))


@script(36)
def random_exchange(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "x-random", auto_delete=True)
    a.publish(s.name("x"), "", "no queue", mandatory=True)
    a.hear()
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), s.name("x"), "anything")
    for body in "123":
        a.publish(s.name("x"), body, body)
    a.drain(s.name("q"))


@script(36)
def recent_history(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "x-recent-history", arguments={"x-recent-history-length": 2})
    a.publish(s.name("x"), "k", "not kept", headers={"x-recent-history-no-store": True})
    for body in "123":
        a.publish(s.name("x"), body, body, headers={"h": body})
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), s.name("x"), "k")
    a.publish(s.name("x"), "new", "new")
    a.count(s.name("q"), 3)
    a.drain(s.name("q"))
    a.call("exchange.delete", exchange=s.name("x"))


@script(36)
def recent_history_length_invalid(s: Stage) -> None:
    a = s.channel()
    for length in (-1, "abc", 0, 1.5):
        arguments = {"x-recent-history-length": length}
        a.exchange(s.name("x"), "x-recent-history", auto_delete=True, arguments=arguments)
