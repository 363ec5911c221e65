"""`leveret store dump`: print records as lines of JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from leveret.cli import exits
from leveret.cli.printing import output
from leveret.errors import AmqpError
from leveret.management.fields import plain
from leveret.store.disk import Disk
from leveret.store.survey.dump import Dump, Fields, queues_of
from leveret.store.survey.identity import identify
from leveret.wire.properties import BasicProperties, decode_properties

#: Fields of bytes that usually contain text.
_TEXTS: Final = ("exchange", "routing_key", "consumer", "publisher")


def print_dump(
    disk: Disk, uuid: bytes, parts: list[str], queue: str, kinds: list[str], bodies: bool
) -> None:
    """Print the records of `parts`, filtered by `queue` and `kinds` if given.  Raises: Failure."""
    identity = identify(disk, uuid)
    if identity.seed is None and parts != ["segments"]:
        text = "no valid seed for this directory; give --uuid, or --segments, which need no seed"
        raise exits.Failure(text, exits.UNUSABLE)
    # Without a seed, only segments are read.
    dump = Dump(disk, identity.seed or 0)
    sources: dict[str, Callable[[], Iterator[Fields]]] = {
        "state": dump.state,
        "journal": dump.journal,
        "segments": dump.segments,
    }
    wanted = _ids(dump, queue) if queue else set()
    for part in parts:
        for fields in sources[part]():
            if kinds and fields["kind"] not in kinds:
                continue
            if queue and not wanted.intersection(queues_of(fields)):
                continue
            output.put_json(as_json(fields, bodies))


def _ids(dump: Dump, queue: str) -> set[object]:
    """Return the ids of the queues with this name, or the id that `queue` itself contains.

    Raises: Failure.
    """
    found: set[object] = set()
    for source in (dump.state, dump.journal):
        for fields in source():
            found.update(_defined(fields, queue))
    if not found and queue.isdecimal():
        found.add(int(queue))
    if not found:
        raise exits.Failure(f"no record defines a queue {queue!r}", exits.REFUSED)
    return found


def _defined(fields: Fields, queue: str) -> Iterator[object]:
    """Yield the ids of the queues with this name that a record defines."""
    definition = fields.get("definition")
    known = definition if isinstance(definition, dict) else {}
    if fields.get("define") == "queue" and known.get("name") == queue:
        yield known.get("id")
    operations = fields.get("operations")
    for operation in operations if isinstance(operations, list) else []:
        yield from _defined(operation, queue)


def as_json(fields: Mapping[str, object], bodies: bool) -> dict[str, object]:
    """Return a record with its bytes converted for JSON."""
    shown: dict[str, object] = {}
    for name, value in fields.items():
        if name == "operations" and isinstance(value, list):
            shown[name] = [as_json(inner, bodies) for inner in value]
        elif name == "properties" and isinstance(value, bytes):
            shown[name] = _properties(value)
        elif name == "body" and isinstance(value, bytes):
            shown["body_bytes"] = len(value)
            if bodies:
                shown.update(_text_or_base64(name, value))
        elif name in _TEXTS and isinstance(value, bytes):
            shown.update(_text_or_base64(name, value))
        else:
            shown[name] = plain(value)
    return shown


def _text_or_base64(name: str, value: bytes) -> dict[str, object]:
    """Return a field as text, or in base64 under the name `<name>_base64`."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _properties(raw: bytes) -> object:
    """Return properties by name, or in base64 if they cannot be decoded."""
    try:
        found = decode_properties(raw)
    except AmqpError:
        return base64.b64encode(raw).decode()
    values = {name: getattr(found, name) for name in BasicProperties.FIELDS}
    return {name: plain(value) for name, value in values.items() if value is not None}
