"""Values that no normal client sends: huge, negative, of wrong types, nested, control characters.

They are for every place where a user can put a value: JSON fields, names in paths, queries, fields
of AMQP methods, field tables, arguments of commands.  `hostile_requests`, `hostile_methods` and
`hostile_commands` make cases of them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import leveret
from support.wire.raw_codec import Typed

_T = TypeVar("_T")


def nested(depth: int, inner: Any = 1) -> Any:
    """Objects nested `depth` levels deep."""
    for _ in range(depth):
        inner = {"a": inner}
    return inner


def nested_lists(depth: int) -> Any:
    """Lists nested `depth` levels deep."""
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


INTEGERS: Final = (
    0, 1, -1, 2, 255, 256, 65_535, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 - 1, 2**53, 2**63 - 1,
    2**63, 2**64, -(2**63), -(2**63) - 1, 99_999_999_999_999_999_999, -(10**30), 10**400,
)  # fmt: skip

#: The integers that fit into 64 bits, for AMQP.
INTEGERS_64: Final = tuple(number for number in INTEGERS if -(2**63) <= number < 2**63)

FLOATS: Final = (1.5, 1.0, -0.0, 1e308, 5e-324, -1e-7)

#: Texts that fit into an AMQP short string.
SHORT_TEXTS: Final = (
    "", " ", "x", "a" * 255, "é" * 127, "€" * 85, "\U0001f407" * 63, "\x00", "a\x00b", "\n",
    "a\r\nb",
    "\x1b[31m", "\x7f", "\u202e", "\ufeff", "'", '"', "\\", "%2F", "../..", ".", "/", "a b", "a,b",
    "(", "(?!x)", "(a+)+$", ".*", "[[", "*", "-1", "5", "1e9", "NaN", "true", "null", "classic",
    "quorum", "stream", "7D", "99999999999Y", "drop-head", "all", "amq.direct", "amq.new",
    "amq.gen-1", "amq.rabbitmq.reply-to", "first", "next", "QUJD", "$argon2id$v=19$m=8,t=1,p=1$a$b",
)  # fmt: skip

#: Texts that do not fit into an AMQP short string.
LONG_TEXTS: Final = ("b" * 256, "é" * 128, "c" * 5_000, "d" * 70_000)

#: Texts larger than a definition may be; a few of them are enough.
HUGE_TEXTS: Final = ("e" * 1_100_000,)

TEXTS: Final = SHORT_TEXTS + LONG_TEXTS

#: JSON values.
JSON_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, *INTEGERS, *FLOATS, *TEXTS,
    [], {}, [1], [None], ["a", 1], [["max-length", 5]], [[1, 2]], {"a": 1}, {"": {}}, {"a": None},
    {"b" * 256: 1}, {"\x00": 1}, nested(30), nested(31), nested(32), nested(40), nested(200),
    nested_lists(31), nested_lists(40), list(range(4_095)), list(range(4_097)),
    {f"k{number}": number for number in range(4_097)}, ["a" * 300], ["t"] * 65, {"a": 2**63},
    {"a": [10**30]}, {"max-length": 2**63}, {"max-length": True}, {"max-length": 5, "bad": 5},
    {"max-queues": 5, "max-connections": 99_999_999_999_999_999_999}, {"max-channels": "5"},
    {"pattern": "(", "definition": {"max-length": 1}}, {"pattern": "x", "definition": nested(40)},
)  # fmt: skip

#: Bodies that are not JSON, or JSON that no client would send.
RAW_JSON: Final = (
    b"", b"{", b"null", b"5", b"[]", b'""', b"NaN", b'{"value":NaN}', b'{"value":1e999}', b"\xff",
    b'{"value":"\\ud800"}', b'{"\\udfff":1}', b'{"value":1,"value":"x"}', b"\xef\xbb\xbf{}",
    '{"value":1}'.encode("utf-16"), b"[" * 100_000, b'{"a":' * 20_000,
    b'{"value":' + b"9" * 5_000 + b"}",
    b'{"value":"\x00"}', b"{} {}",
)  # fmt: skip

#: Values of field tables, by AMQP's types.
TABLE_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, *INTEGERS_64, *FLOATS, float("nan"), float("inf"), float("-inf"), *TEXTS,
    b"", b"\x00\xff", Typed("S", b"\xff\xfe"), Typed("S", b"\xed\xa0\x80"), Typed("b", -128),
    Typed("B", 255), Typed("s", -32_768), Typed("u", 65_535), Typed("i", 2**32 - 1),
    Typed("L", 2**64 - 1), Typed("f", 1.5), Typed("T", 0), Typed("T", 2**64 - 1), Typed("D",
    (0, 5)),
    Typed("D", (255, 2**31 - 1)), Typed("D", (1, -1)), Typed("V", None), Typed("?", None), [],
    {}, [1, "a", [True]],
    {"a": {"b": b"\xff"}}, {"": 1}, {"a" * 255: 1}, nested(29), nested(30), nested(31), nested(40),
    nested_lists(30), nested_lists(31), [0] * 4_095, [0] * 4_097,
    {f"k{number}": number for number in range(4_090)},
)  # fmt: skip

#: Arguments that the broker knows, on queues, exchanges, bindings and consumers, and valid values.
ARGUMENTS: Final[dict[str, Any]] = {
    "x-expires": 100_000,
    "x-message-ttl": 1_000,
    "x-max-length": 5,
    "x-max-length-bytes": 5,
    "x-max-priority": 3,
    "x-delivery-limit": 2,
    "x-consumer-timeout": 5_000,
    "x-stream-max-segment-size-bytes": 1_000_000,
    "x-deduplication-header": "id",
    "x-deduplication-window-size": 5,
    "x-deduplication-window-age": 5,
    "x-retain-acked": "1h",
    "x-retain-acked-bytes": 5,
    "x-staging-sink": "sink",
    "x-staging-batch": 1,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "k",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "drop-head",
    "x-queue-type": "classic",
    "x-queue-mode": "lazy",
    "x-queue-version": 2,
    "x-queue-leader-locator": "balanced",
    "x-max-age": "1D",
    "x-single-active-consumer": True,
    "x-super-stream-partitions": 3,
    "alternate-exchange": "amq.fanout",
    "x-delayed-type": "direct",
    "x-recent-history-length": 5,
    "hash-header": "h",
    "hash-property": "message_id",
    "x-match": "any",
    "x-stream-offset": "first",
    "x-stream-consumer": "reader",
    "x-stream-filter": "f",
    "x-stream-match-unfiltered": True,
    "x-priority": 5,
    "x-browse": {"position": "first"},
    "x-cancel-on-ha-failover": True,
}

#: Headers that the broker knows on messages.
HEADERS: Final[dict[str, Any]] = {
    "CC": ["a"],
    "BCC": ["b"],
    "x-delay": 1_000,
    "x-publisher": "p",
    "x-publishing-id": 1,
    "x-deduplication-header": "h",
    "id": "5",
    "x-stream-filter-value": "f",
    "x-staged-exchange": "",
    "x-staged-routing-key": "q",
    "x-death": [{"count": 1, "queue": "q"}],
    "x-first-death-reason": "expired",
    "x-delivery-count": 5,
}

#: Bytes of names in a path; characters other than letters are percent-encoded if necessary.
PATH_NAMES: Final = (
    *(text.encode() for text in SHORT_TEXTS if text not in ("", ".")),
    *(text.encode() for text in LONG_TEXTS[:3]), b"\xff", b"\xc3\x28", b"\xed\xa0\x80",
    b"9" * 17, b"9" * 20, b"9" * 5_000, "\u0665".encode(),
)  # fmt: skip

#: Values in a query.
QUERY_VALUES: Final = (
    "", "0", "1", "-1", "true", "false", "1.5", "x", "9" * 15, "9" * 19, "9" * 25, "9" * 5_000,
    "%00", "%ff", "%0a", "%d9%a5", "NaN", "1e5", "+1", "0x5",
)  # fmt: skip


def spread(random_: random.Random, groups: Iterable[Sequence[_T]], count: int) -> list[_T]:
    """Choose `count` items evenly from the groups, at least one of each."""
    left = [random_.sample(group, len(group)) for group in groups if group]
    chosen: list[_T] = []
    while len(chosen) < count and left:
        chosen += [group.pop() for group in left]
        left = [group for group in left if group]
    del chosen[count:]
    random_.shuffle(chosen)
    return chosen


def named_in_source(*rooms: str) -> list[str]:
    """The names of arguments and headers in the source of these rooms.

    New names are found without being listed anywhere.
    """
    root = Path(leveret.__file__).parent
    found: set[str] = set()
    for room in rooms:
        for path in (root / room).rglob("*.py"):
            found.update(re.findall(r'"(x-[a-z-]*[a-z])"', path.read_text()))
    return sorted(found)
