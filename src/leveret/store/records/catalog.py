"""Definitions as they result from their records: the last one counts, and deletes cascade.

A broker applies most definitions at once (`broker/recovery/restore.py`) and keeps only bindings
here until both ends are known.  Tools have no broker and must lose nothing: every record of an
unknown kind is kept.

Invariants: a definition is stored once under its identity; deleting a vhost, exchange, queue or
user deletes the objects that it owns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from leveret.store.records.fields import encoded_table, table, table_identity, text
from leveret.wire.tables import read_table

#: The kind of record that tells at which offset of a stream the messages of a batch begin that is
#: being released: readers see nothing from there on.
BATCH_START: Final = "batch_start"

#: The fields that identify a definition of each kind.
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
    # The owner of a name that clients use.
    "publisher": ["id", "name"],
    "stream_consumer": ["id", "name"],
    # Each record is a decision: those of batches that are not released yet are needed, too.
    "sink": ["vhost", "name", "batch"],
    "batch_start": ["id", "vhost", "name", "destination", "batch"],
    "binding": ["vhost", "source", "destination_type", "destination", "routing_key", "arguments"],
}

#: The kinds whose definitions stay until they or their owner are deleted by a record.
_LASTING: Final = (
    "vhost", "user", "permission", "topic_permission", "user_limits", "policy", "operator_policy",
    "parameter", "global_parameter", "exchange", "queue", "binding",
)  # fmt: skip

#: The kinds that record an event and not a state.
PASSING: Final = ("start",)

Key = tuple[str | bytes, ...]

#: The key in a stored definition for its arguments, encoded by `encoded_table`.
_PACKED: Final = "packed arguments"

#: Arguments with fewer entries are stored as they are: packing would cost time and save nothing.
_PACKED_ENTRIES_MIN: Final = 8


@final
class Catalog:
    """Definitions by their identity, in the order in which they were first recorded."""

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[str, dict[str, object]]] = {}
        self._owned: dict[Key, dict[Key, None]] = {}
        self._count = 0

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Add a definition; it replaces one of the same identity."""
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
        """Delete a definition and the objects it owns."""
        key = _key(kind, definition)
        found = self._kept.get(key)
        self._remove(key)
        owner = key
        if kind == "queue":
            # Bindings refer to a queue by its name; other definitions of a queue refer to its id.
            named = definition if found is None else found[1]
            self._remove_owned(("named", text(named, "vhost"), text(named, "name")))
        self._remove_owned(owner)

    def all_of(self, *kinds: str) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield the kind and definition of each definition of some kinds."""
        for kind, definition in list(self._kept.values()):
            if kind in kinds:
                yield kind, _unpacked(definition)

    def take_all_of(self, kind: str) -> Iterator[dict[str, object]]:
        """Yield and remove the definitions of a kind.

        So a start does not have them in memory twice: as records, and as the defined objects.
        """
        for key in [key for key, (one, _) in self._kept.items() if one == kind]:
            yield _unpacked(self._kept.pop(key)[1])

    def others_than(self, *kinds: str) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield the kind and definition of each definition except those of some kinds."""
        for kind, definition in list(self._kept.values()):
            if kind not in kinds:
                yield kind, _unpacked(definition)

    def missing_in(self, other: Catalog) -> list[tuple[str, dict[str, object]]]:
        """Return the definitions missing in `other`, for kinds that only a delete ends.

        Other kinds end without a delete: a sink that commits nothing for a long time is forgotten.
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
    """Return the owners of a definition: keys of other definitions."""
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
        # All its decisions are deleted when it is forgotten.
        owners.append(_key(kind, {"vhost": vhost, "name": text(definition, "name")}))
    elif kind != "queue" and "id" in definition:
        owners.append(("queue", text(definition, "id")))
    return owners


def _packed(definition: dict[str, object]) -> dict[str, object]:
    """Return a definition in its stored form: large arguments need less memory encoded."""
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
