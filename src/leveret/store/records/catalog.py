"""The catalog of definitions that result from records, in which deletes cascade.

A broker applies most definitions at once (`broker/recovery/restore.py`), and stores only bindings
in a catalog until both ends are known.  Tools have no broker and must not lose definitions, so the
catalog stores every record of an unknown kind.

Invariants: a definition is stored once under its identity; deleting a vhost, exchange, queue or
user deletes the objects that it owns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from leveret.store.records.fields import encoded_table, table, table_identity, text
from leveret.wire.tables import read_table

#: The kind of record with the offset at which a batch that is being released begins in a stream.
#: Readers do not receive messages from that offset on.
BATCH_START: Final = "batch_start"

#: The fields that identify a definition, by kind.
IDENTITY: Final[dict[str, list[str]]] = {
    "vhost": ["name"],
    "user": ["name"],
    "permission": ["user", "vhost"],
    "topic_permission": ["user", "vhost", "exchange"],
    "user_limits": ["user"],
    "policy": ["vhost", "name"],
    "operator_policy": ["vhost", "name"],
    "parameter": ["vhost", "component", "name"],
    "global_parameter": ["name"],
    "exchange": ["vhost", "name"],
    "queue": ["id"],
    "redelivered": ["id"],
    "levels": ["id"],
    "retry": ["id", "sequence"],
    "stream_id": ["id"],
    # The owners of names that clients use.
    "publisher": ["id", "name"],
    "stream_consumer": ["id", "name"],
    # Each record is a decision.  Decisions about batches that are not released yet are also needed.
    "sink": ["vhost", "name", "batch"],
    "batch_start": ["id", "vhost", "name", "destination", "batch"],
    "binding": ["vhost", "source", "destination_type", "destination", "routing_key", "arguments"],
}

#: The kinds whose definitions exist until a record deletes them or their owner.
_LASTING: Final = (
    "vhost", "user", "permission", "topic_permission", "user_limits", "policy", "operator_policy",
    "parameter", "global_parameter", "exchange", "queue", "binding",
)  # fmt: skip

#: The kind of record that a broker appends when it starts.
START: Final = "start"

#: The kinds that record an event instead of a state.
PASSING: Final = (START,)

Key = tuple[str | bytes, ...]

#: The key in a stored definition for its arguments, encoded by `encoded_table`.
_PACKED: Final = "packed arguments"

#: Arguments with fewer entries are stored unencoded, because encoding them would save no memory.
_PACKED_ENTRIES_MIN: Final = 8


@final
class Catalog:
    """Definitions by their identity, in the order in which they were first recorded."""

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[str, dict[str, object]]] = {}
        self._owned: dict[Key, dict[Key, None]] = {}
        self._count = 0

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Add a definition, or replace one with the same identity."""
        if kind in PASSING:
            return
        key = _key(kind, definition)
        if kind not in IDENTITY:
            self._count += 1
            key = (kind, str(self._count))
        elif key in self._kept:
            if kind == "sink":
                # The last recorded batch of a sink counts.
                del self._kept[key]
            self._kept[key] = (kind, _packed(definition))
            return
        self._kept[key] = (kind, _packed(definition))
        for owner in _owners(kind, definition):
            self._owned.setdefault(owner, {})[key] = None

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Delete a definition and the definitions that it owns."""
        key = _key(kind, definition)
        found = self._kept.get(key)
        self._remove(key)
        owner = key
        if kind == "queue":
            # Bindings refer to a queue by its name, other definitions by its id.
            named = definition if found is None else found[1]
            self._remove_owned(("named", text(named, "vhost"), text(named, "name")))
        self._remove_owned(owner)

    def all_of(self, *kinds: str) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield each definition of some kinds, with its kind."""
        for kind, definition in list(self._kept.values()):
            if kind in kinds:
                yield kind, _unpacked(definition)

    def take_all_of(self, kind: str) -> Iterator[dict[str, object]]:
        """Yield and remove the definitions of a kind.

        So a start does not have them in memory twice, as definitions and as the defined objects.
        """
        for key in [key for key, (one, _) in self._kept.items() if one == kind]:
            yield _unpacked(self._kept.pop(key)[1])

    def others_than(self, *kinds: str) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield each definition except those of some kinds, with its kind."""
        for kind, definition in list(self._kept.values()):
            if kind not in kinds:
                yield kind, _unpacked(definition)

    def missing_in(self, other: Catalog) -> list[tuple[str, dict[str, object]]]:
        """Return the definitions missing in `other`, of kinds that only a delete removes.

        Other kinds end without a delete.  For example, sinks without commits for a long time are
        forgotten.
        """
        found: list[tuple[str, dict[str, object]]] = []
        for key, (kind, definition) in self._kept.items():
            if kind in _LASTING and key not in other._kept:
                found.append((kind, _unpacked(definition)))
        return found

    def __len__(self) -> int:
        return len(self._kept)

    def _remove_owned(self, owner: Key) -> None:
        for key in list(self._owned.pop(owner, {})):
            self._remove(key)

    def _remove(self, key: Key) -> None:
        found = self._kept.pop(key, None)
        if found is None:
            return
        for owner in _owners(found[0], found[1]):
            owned = self._owned.get(owner)
            if owned is not None:
                owned.pop(key, None)
                if not owned:
                    del self._owned[owner]


def _key(kind: str, definition: dict[str, object]) -> Key:
    """Return the identity of a definition."""
    parts: list[str | bytes] = [kind]
    for field in IDENTITY.get(kind, []):
        value = definition.get(field)
        parts.append(table_identity(value) if isinstance(value, dict) else text(definition, field))
    return tuple(parts)


def _owners(kind: str, definition: dict[str, object]) -> list[Key]:
    """Return the keys of a definition's owners."""
    owners: list[Key] = []
    vhost = text(definition, "vhost")
    if "vhost" in definition:
        owners.append(("vhost", vhost))
    if kind in ("permission", "topic_permission", "user_limits"):
        owners.append(("user", text(definition, "user")))
    elif kind == "binding":
        owners.append(("exchange", vhost, text(definition, "source")))
        end = "named" if text(definition, "destination_type") == "queue" else "exchange"
        owners.append((end, vhost, text(definition, "destination")))
    elif kind == "sink":
        # When a sink is forgotten, all its decisions are deleted.
        owners.append(_key(kind, {"vhost": vhost, "name": text(definition, "name")}))
    elif kind != "queue" and "id" in definition:
        owners.append(("queue", text(definition, "id")))
    return owners


def _packed(definition: dict[str, object]) -> dict[str, object]:
    """Return a definition with large arguments encoded, which need less memory."""
    arguments = table(definition, "arguments")
    if len(arguments) < _PACKED_ENTRIES_MIN:
        return definition
    packed = {name: value for name, value in definition.items() if name != "arguments"}
    packed[_PACKED] = encoded_table(arguments)
    return packed


def _unpacked(definition: dict[str, object]) -> dict[str, object]:
    """Reverse `_packed`."""
    encoded = definition.get(_PACKED)
    if not isinstance(encoded, bytes):
        return definition
    unpacked = {name: value for name, value in definition.items() if name != _PACKED}
    unpacked["arguments"] = read_table(encoded, 0, len(encoded))[0]
    return unpacked
