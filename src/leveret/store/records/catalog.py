"""Definitions as they stand after their records: what is told last counts, deletes take along.

A broker takes most of them at once (`broker/recovery/restore.py`) and keeps only bindings here
until their ends are known.  Tools have no broker and must lose nothing: of a kind that is not known
here every record is kept.

Invariants: a definition is kept once under what identifies it; what a vhost, exchange, queue or
user owns goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from leveret.store.records.fields import text

#: What makes a definition of a kind unique.
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
    "retry": ["id", "sequence"],
    "stream_id": ["id"],
    # Whose a name is that clients use.
    "publisher": ["id", "name"],
    "stream_consumer": ["id", "name"],
    # Each is a decision: those of batches that are not released yet are needed, too.
    "sink": ["vhost", "name", "batch"],
    "binding": ["vhost", "source", "destination_type", "destination", "routing_key", "arguments"],
}

#: Kinds of which each definition stays until a record deletes it, or what owns it.
_LASTING: Final = (
    "vhost", "user", "permission", "topic_permission", "user_limits", "policy", "operator_policy",
    "parameter", "global_parameter", "exchange", "queue", "binding",
)  # fmt: skip

#: Kinds that say what happened and not what is.
PASSING: Final = ("start",)

Key = tuple[str, ...]


@final
class Catalog:
    """Definitions by what identifies them, in the order in which they were first told."""

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[str, dict[str, object]]] = {}
        self._owned: dict[Key, dict[Key, None]] = {}
        self._told = 0

    def define(self, kind: str, definition: dict[str, object]) -> None:
        """Take a definition; one of the same identity is replaced."""
        if kind in PASSING:
            return
        key = _key(kind, definition)
        if kind not in IDENTITY:
            self._told += 1
            key = (kind, str(self._told))
        elif key in self._kept:
            if kind == "sink":
                # Of a sink's batches the one that was told last counts.
                del self._kept[key]
            self._kept[key] = (kind, definition)
            return
        self._kept[key] = (kind, definition)
        for owner in _owners(kind, definition):
            self._owned.setdefault(owner, {})[key] = None

    def delete(self, kind: str, definition: dict[str, object]) -> None:
        """Take out a definition and what it owns."""
        key = _key(kind, definition)
        found = self._kept.get(key)
        self._remove(key)
        owner = key
        if kind == "queue":
            # Bindings know a queue by its name; by its id it owns what else there is of it.
            named = definition if found is None else found[1]
            self._remove_owned(("named", text(named, "vhost"), text(named, "name")))
        self._remove_owned(owner)

    def all_of(self, *kinds: str) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield kind and definition of each of some kinds."""
        for kind, definition in list(self._kept.values()):
            if kind in kinds:
                yield kind, definition

    def others_than(self, *kinds: str) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield kind and definition of each that is of none of some kinds."""
        for kind, definition in list(self._kept.values()):
            if kind not in kinds:
                yield kind, definition

    def missing_in(self, other: Catalog) -> list[tuple[str, dict[str, object]]]:
        """Return kind and definition of what `other` lacks, of the kinds that only a delete ends.

        Others pass by themselves: a sink that commits nothing for long is forgotten.
        """
        found: list[tuple[str, dict[str, object]]] = []
        for key, (kind, definition) in self._kept.items():
            if kind in _LASTING and key not in other._kept:
                found.append((kind, definition))
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
    """Return what identifies a definition."""
    parts = [kind]
    for field in IDENTITY.get(kind, []):
        value = definition.get(field)
        if isinstance(value, dict):
            parts.append(repr(sorted(value.items(), key=_first)))
        else:
            parts.append(text(definition, field))
    return tuple(parts)


def _owners(kind: str, definition: dict[str, object]) -> list[Key]:
    """Return what a definition goes with: keys of other definitions."""
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
        # All its decisions go when it is forgotten.
        owners.append(_key(kind, {"vhost": vhost, "name": text(definition, "name")}))
    elif kind != "queue" and "id" in definition:
        owners.append(("queue", text(definition, "id")))
    return owners


def _first(item: tuple[str, object]) -> str:
    return item[0]
