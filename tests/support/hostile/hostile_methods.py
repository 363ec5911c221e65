"""Hostile methods of AMQP, made from the one table of methods.

Each client method has valid values for its fields, by the field's name.  A case is a method with
one or several fields made hostile: names, numbers, tables, and for a publish its properties,
headers and body.  Bytes are made here by the field's kind, so that a new method or field is covered
without being listed.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from leveret.wire.spec import METHODS, PROPERTIES, SERVER, Field, MethodSpec
from support.hostile.hostile_values import (
    ARGUMENTS,
    HEADERS,
    SHORT_TEXTS,
    TABLE_VALUES,
    named_in_source,
    nested,
)
from support.wire.raw_codec import METHOD, Typed, content, encode_fields, frame, table_value

#: A case: the method's name, and a function that makes its bytes on channel 1 (0 for connection).
Case = tuple[str, Callable[[], bytes]]

#: Valid values of fields by name, or by method and name.
_GOOD: Final[dict[str, Any]] = {
    "queue": "q", "exchange": "e", "source": "e", "destination": "amq.fanout", "routing_key": "k",
    "type": "topic", "durable": True, "consumer_tag": "tag", "prefetch_count": 5,
    "queue.declare queue": "new", "exchange.declare exchange": "new", "queue.delete queue": "new",
    "exchange.delete exchange": "new", "basic.publish exchange": "",
    "basic.publish routing_key": "q",
    "queue.bind exchange": "amq.topic", "reply_code": 200, "delivery_tag": 1,
}  # fmt: skip

_LETTERS: Final = {
    "bit": "b", "octet": "o", "short": "h", "long": "l", "longlong": "q", "shortstr": "s",
    "longstr": "S", "table": "T", "timestamp": "t",
}  # fmt: skip

_NUMBERS: Final = {
    "bit": (0, 1),
    "octet": (0, 1, 2, 127, 255),
    "short": (0, 1, 2**15, 2**16 - 1),
    "long": (0, 1, 2**31, 2**32 - 1),
    "longlong": (0, 1, 2**63, 2**64 - 1),
    "timestamp": (0, 1, 2**63, 2**64 - 1),
}

#: Names in UTF-8, and names that are not.
_NAMES: Final = (*(text.encode() for text in SHORT_TEXTS), b"\xff", b"\xed\xa0\x80", b"\xc3")

#: Values of arguments that exchange types use.
_OF_TYPES: Final[tuple[Any, ...]] = (
    "topic", -1, 0, 2**63 - 1, 5, None, True, b"\xff", [], {},
)  # fmt: skip

#: Malformed tables.
_BROKEN_TABLES: Final = (
    b"\x05", b"\x01a", b"\x01aZ", b"\x01aS\xff\xff\xff\xff", b"\x01aF\x00\x00\x00\x09",
    b"\x01\xffI\x00\x00\x00\x01", b"\x01aI\x00\x00\x00\x01" * 5_000, b"\x01aA\x80\x00\x00\x00",
)  # fmt: skip

#: Changes to a valid commit of a staged batch.
_CHANGES: Final[tuple[dict[str, Any], ...]] = (
    {}, {"sink": 5}, {"sink": ""}, {"sink": "x" * 256}, {"sink": "\x00"}, {"sink": "other"},
    {"batch": -1}, {"batch": 2**63}, {"batch": 2**63 - 1}, {"batch": True}, {"batch": 1.5},
    {"batch": None}, {"queues": None}, {"queues": [1]}, {"queues": ["stage", "stage"]},
    {"queues": ["none"]}, {"queues": []}, {"queues": ["q"]}, {"queues": ["x"] * 5_000},
    {"queues": [f"q{number}" for number in range(4_000)]}, {"unroutable": 5},
    {"destination": "d"}, {"destination": ""}, {"destination": 5}, {"destination": "x" * 256},
    {"destination": "d", "queues": []}, {"lower": "fail"}, {"lower": []}, {"lower": "x"},
    {"unroutable": "dead-letter:"}, {"unroutable": "dead-letter:none"}, {"unroutable": "x"},
    {"more": 1}, nested(200),
)  # fmt: skip

#: Bodies of such commits.
_COMMITS: Final = tuple(
    {"sink": "sink", "batch": 1, "queues": ["stage"], "unroutable": "drop", **changed}
    for changed in _CHANGES
)

COMMIT_KEY: Final = "amq.leveret.commit"


def client_methods() -> list[MethodSpec]:
    """The methods that a client may send, and those that it must not."""
    return [spec for spec in METHODS.values() if spec.sender != SERVER or not spec.replies]


def _good(spec: MethodSpec, field: Field) -> Any:
    if field.reserved:
        return None
    found = _GOOD.get(f"{spec.full_name} {field.name}", _GOOD.get(field.name))
    return {} if found is None and field.kind == "table" else found


def _value(field: Field, value: Any) -> Any:
    """A value as `encode_fields` takes it."""
    if field.kind == "table" and isinstance(value, dict):
        # Entry by entry, for a key of any bytes.
        parts = []
        for key, inner in value.items():
            name = key if isinstance(key, bytes) else key.encode()
            parts.append(bytes([len(name)]) + name + table_value(inner))
        return b"".join(parts)
    return value


def encoded(
    spec: MethodSpec, values: dict[int, Any], body: bytes = b"", raw: bytes = b"\0\0"
) -> bytes:
    """The bytes of a method with the fields `values`, by their index, and valid other fields."""
    fields = [(f"f{place}", _LETTERS[field.kind]) for place, field in enumerate(spec.fields)]
    made = {
        f"f{place}": _value(field, values.get(place, _good(spec, field)))
        for place, field in enumerate(spec.fields)
    }
    channel = 0 if spec.class_name == "connection" else 1
    ids = struct.pack(">HH", spec.class_id, spec.method_id)
    sent = frame(METHOD, channel, ids + encode_fields(fields, made))
    return sent + content(channel, body, raw) if spec.has_content else sent


def argument_names() -> list[str]:
    """The names of arguments in the broker's source."""
    return sorted({*ARGUMENTS, *named_in_source("broker", "session")})


def tables() -> list[Any]:
    """Hostile tables of arguments."""
    found: list[Any] = [{"free": value} for value in TABLE_VALUES]
    found += [{b"\xff": 1}, {b"\xed\xa0\x80": 1}, {"a\x00": 1}, {"": ""}, *_BROKEN_TABLES]
    for name in argument_names():
        found += [{name: value} for value in TABLE_VALUES]
        for partner in ("x-queue-type", "x-dead-letter-exchange", "x-staging-batch"):
            for good in ("stream", "quorum", 1):
                value = ARGUMENTS.get(name, 5)
                found.append({name: value, partner: good})
    found.append({name: value for name, value in ARGUMENTS.items() if not name.startswith("x-st")})
    return found


def _hostile(field: Field) -> list[Any]:
    if field.kind == "shortstr":
        return list(_NAMES)
    if field.kind == "longstr":
        return [*_NAMES, b"x" * 70_000]
    if field.kind == "table":
        return tables()
    return list(_NUMBERS[field.kind])


def cases() -> dict[str, list[Case]]:
    """All cases with one hostile field, by method."""
    found: dict[str, list[Case]] = {}
    every_table = tables()
    for spec in client_methods():
        made = found.setdefault(spec.full_name, [])
        made.append((spec.full_name, partial(encoded, spec, {})))
        for place, field in enumerate(spec.fields):
            hostile = every_table if field.kind == "table" else _hostile(field)
            for value in hostile:
                made.append((spec.full_name, partial(encoded, spec, {place: value})))
        if spec.full_name == "exchange.declare":
            made += _of_types(spec)
        if spec.full_name in ("queue.bind", "exchange.bind"):
            made += _of_sources(spec)
    publish = METHODS["basic.publish"]
    found["basic.publish"] += _publishes(publish)
    return found


def _of_types(spec: MethodSpec) -> list[Case]:
    """Declares of each exchange type in the source, with hostile arguments for it."""
    kinds = [name for name in argument_names() if not name.startswith(("x-stream", "x-st"))]
    kind = [field.name for field in spec.fields].index("type")
    arguments = [field.name for field in spec.fields].index("arguments")
    return [
        (spec.full_name, partial(encoded, spec, {kind: name, arguments: {argument: value}}))
        for name in kinds
        for argument in ("x-delayed-type", "x-recent-history-length", "hash-header", "free")
        for value in _OF_TYPES
    ]


def _of_sources(spec: MethodSpec) -> list[Case]:
    """Bindings of exchanges that use keys or arguments."""
    names = [field.name for field in spec.fields]
    source = names.index("exchange" if "exchange" in names else "source")
    key, arguments = names.index("routing_key"), names.index("arguments")
    made: list[Case] = []
    for exchange in ("amq.topic", "amq.headers", "amq.match", "amq.direct", "hash", "history"):
        made += [
            (spec.full_name, partial(encoded, spec, {source: exchange, key: text}))
            for text in _NAMES
        ]
        for value in TABLE_VALUES:
            table = {"x-match": "all", "free": value}
            values = {source: exchange, key: "5", arguments: table}
            made.append((spec.full_name, partial(encoded, spec, values)))
    return made


def _properties(name: str, value: Any) -> bytes:
    """Property bytes with one property, which may be invalid."""
    flags, out = 0, b""
    for bit, field in enumerate(PROPERTIES):
        if field.name == name:
            flags |= 1 << (15 - bit)
            out += encode_fields([("f", _LETTERS[field.kind])], {"f": _value(field, value)})
        elif field.name == "delivery_mode":
            flags |= 1 << (15 - bit)
            out += b"\x02"
    return struct.pack(">H", flags) + out


def _publishes(spec: MethodSpec) -> list[Case]:
    """Publishes with hostile properties, headers and commands."""
    name = spec.full_name
    made: list[Case] = []
    places = {field.name: place for place, field in enumerate(spec.fields)}
    queue = {places["exchange"]: "", places["routing_key"]: "q"}
    for field in PROPERTIES:
        for value in _hostile(field) if field.kind != "table" else []:
            raw = partial(_properties, field.name, value)
            made.append((name, partial(_published, spec, queue, b"body", raw)))
    known = sorted({*HEADERS, *named_in_source("broker", "session", "wire")})
    targets = [queue, {places["exchange"]: "e", places["routing_key"]: "k"}]
    targets.append({places["exchange"]: "", places["routing_key"]: "s"})
    targets.append({places["exchange"]: "", places["routing_key"]: "stage"})
    for target in targets:
        for header in [*known, "free"]:
            for value in TABLE_VALUES[::3]:
                raw = partial(_properties, "headers", {header: value})
                made.append((name, partial(_published, spec, target, b"body", raw)))
    commit = {places["exchange"]: "", places["routing_key"]: COMMIT_KEY}
    for command in _COMMITS:
        raw = partial(_properties, "", None)
        made.append((name, partial(_published, spec, commit, json.dumps(command).encode(), raw)))
    plain = partial(_properties, "", None)
    made += [
        (name, partial(_published, spec, commit, body, plain))
        for body in (b"", b"\xff", b"[]", b"{", b"null", b"[" * 100_000)
    ]
    return made


def _published(
    spec: MethodSpec, values: dict[int, Any], body: bytes, raw: Callable[[], bytes]
) -> bytes:
    return encoded(spec, values, body, raw())


def mixed(random_: random.Random, count: int) -> list[Case]:
    """Cases with several hostile fields."""
    writable = [
        spec for spec in client_methods() if spec.class_name in ("queue", "exchange", "basic")
    ]
    names = argument_names()
    return [(spec.full_name, partial(_several, spec, names, random_.getrandbits(32))) for spec in
            random_.choices(writable, k=count)]  # fmt: skip


def _several(spec: MethodSpec, names: list[str], seed: int) -> bytes:
    """A method with hostile fields in several places."""
    random_ = random.Random(seed)
    values: dict[int, Any] = {}
    for place, field in enumerate(spec.fields):
        if random_.random() < 0.4:
            if field.kind == "table":
                chosen = random_.sample(names, random_.randint(1, 4))
                values[place] = {
                    name: random_.choice(TABLE_VALUES)
                    if random_.random() < 0.3
                    else ARGUMENTS.get(name, Typed("l", 5))
                    for name in chosen
                }
            else:
                values[place] = random_.choice(_hostile(field))
    return encoded(spec, values, b"body")
