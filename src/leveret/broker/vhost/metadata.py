"""The metadata that an administrator sets for a virtual host, and the vhost's journal record.

The record also has the limits (`limits.py`).

Invariants: all stored values have been checked; a change is journaled.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import QUEUE_TYPES, Arguments
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.policies.keys import utf8_size
from leveret.broker.queue.queue import Queue
from leveret.broker.vhost.limits import checked_limits
from leveret.errors import PreconditionFailed
from leveret.limits import SHORT_STRING_BYTES_MAX, VHOST_DESCRIPTION_BYTES_MAX, VHOST_TAGS_MAX

if TYPE_CHECKING:
    from leveret.broker.vhost.vhost import Vhost

#: The field of a vhost's record that marks it as being deleted.
DISSOLVING: Final = "dissolving"

#: Other names for queue types in the definitions that RabbitMQ exports.
_TYPE_NAMES: Final = {
    "rabbit_classic_queue": "classic",
    "rabbit_quorum_queue": "quorum",
    "rabbit_stream_queue": "stream",
    "undefined": "",
}

#: The fields of a vhost's metadata that are true or false.
_SWITCHES: Final = ("strict_keys", "protected_from_deletion", "tracing")


def _memory(description: str, tags: list[str]) -> i64:
    """Return the memory of a vhost's strings."""
    size: i64 = sys.getsizeof(description)
    for tag in tags:
        size += i64(sys.getsizeof(tag)) + 8
    return size


@final
class Metadata:
    """The metadata of one vhost."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost: Final = vhost
        self.description = ""
        self.tags: list[str] = []
        #: The type of queues that are declared without one; empty for classic.
        self.default_queue_type = ""
        #: True to refuse the vhost's deletion.
        self.protected = False

    # -- metadata ---------------------------------------------------------------------------------

    def fields(self) -> Arguments:
        """Return the metadata under RabbitMQ's names; `strict_keys` is Leveret's."""
        return merged_metadata(
            {},
            {
                "description": self.description,
                "tags": self.tags,
                "default_queue_type": self.default_queue_type,
                "protected_from_deletion": self.protected,
                "strict_keys": self._vhost.strict_keys,
            },
        )

    def set(self, changes: Arguments, limits: Arguments | None = None) -> None:
        """Change the fields that `changes` names, and replace the limits if any are given.

        The fields are description, tags, default_queue_type, strict_keys and
        protected_from_deletion; other entries are ignored.  All changes are one record.

        Raises: PreconditionFailed (406) for an invalid value, or if definitions have reached their
        memory limit; then nothing is changed.
        """
        check_metadata(changes)
        self.change(changes, checked_limits(limits or {}) or self._vhost.limits.by_name)

    def change(self, changes: Arguments, limits: dict[str, int]) -> None:
        """Apply checked changes; they are journaled first."""
        wanted = merged_metadata(self.fields(), changes)
        record = vhost_record(self._vhost.name, wanted, limits)
        if record != self.record():
            tags = tag_list(wanted["tags"])
            size = _memory(str(wanted["description"]), tags)
            before = _memory(self.description, self.tags)
            if size > before:
                self._vhost.account.check(self._vhost.name, size - before)
            self._vhost.core.journal.define("vhost", record)
            self._take(wanted)
            self._vhost.limits.take(limits)

    def _take(self, fields: Arguments) -> None:
        """Apply all fields, as returned by `merged_metadata`."""
        before = _memory(self.description, self.tags)
        self.description = str(fields["description"])
        self.tags = tag_list(fields["tags"])
        self.default_queue_type = str(fields.get("default_queue_type", ""))
        self.protected = "protected_from_deletion" in fields
        self._vhost.strict_keys = "strict_keys" in fields
        self._vhost.revision += 1
        self._vhost.account.book(_memory(self.description, self.tags) - before)

    # -- the default queue type -------------------------------------------------------------------

    def typed(self, attributes: QueueAttributes) -> QueueAttributes:
        """Return the attributes of a new queue, with the default type if they name none.

        As in RabbitMQ, a queue that cannot have that type stays classic.
        """
        kind = self.default_queue_type
        replicated = kind in ("quorum", "stream")
        if not kind or "x-queue-type" in attributes.arguments:
            return attributes
        is_temporary = not attributes.durable or attributes.exclusive or attributes.auto_delete
        if replicated and is_temporary:
            return attributes
        return QueueAttributes(
            attributes.durable,
            attributes.exclusive,
            attributes.auto_delete,
            {**attributes.arguments, "x-queue-type": kind},
        )

    def typed_as(self, current: Queue, arguments: Arguments) -> Arguments:
        """Return the arguments of a redeclare with the existing queue's type if they name none.

        A default type is not compared with an existing queue, which may be older than the default.
        """
        if not self.default_queue_type or "x-queue-type" in arguments:
            return arguments
        return {**arguments, "x-queue-type": current.kind}

    # -- the record -------------------------------------------------------------------------------

    def record(self) -> dict[str, object]:
        """Return the vhost's journal record, which also says if the vhost is being deleted."""
        record = vhost_record(self._vhost.name, self.fields(), self._vhost.limits.by_name)
        if self._vhost.deleted:
            record[DISSOLVING] = True
        return record

    def restore(self, record: dict[str, object]) -> None:
        """Apply a journal record, without checks and without a new record."""
        metadata = record.get("metadata")
        limits = record.get("limits")
        self._take(merged_metadata({}, metadata if isinstance(metadata, dict) else {}))
        kept = limits if isinstance(limits, dict) else {}
        self._vhost.limits.take(
            {str(name): limit for name, limit in kept.items() if isinstance(limit, int)}
        )


def vhost_record(name: str, metadata: Arguments, limits: Mapping[str, int]) -> Arguments:
    """Return the journal record of a vhost."""
    return {"name": name, "metadata": metadata, "limits": dict(limits)}


def merged_metadata(current: Arguments, changes: Arguments) -> Arguments:
    """Return metadata after checked changes, by RabbitMQ's names and without unset fields."""
    merged = {**current, **changes}
    found: Arguments = {
        "description": str(merged.get("description", "")),
        "tags": tag_list(merged.get("tags", [])),
    }
    kind = _type_name(merged.get("default_queue_type"))
    if kind:
        found["default_queue_type"] = kind
    for name in ("protected_from_deletion", "strict_keys"):
        if merged.get(name) is True:
            found[name] = True
    return found


def check_metadata(changes: Arguments) -> None:
    """Check the values of metadata.  Raises: PreconditionFailed (406)."""
    description = changes.get("description", "")
    if not isinstance(description, str) or utf8_size(description) > VHOST_DESCRIPTION_BYTES_MAX:
        raise PreconditionFailed(
            f"a vhost's description must be a string of at most {VHOST_DESCRIPTION_BYTES_MAX} bytes"
        )
    tags = tag_list(changes.get("tags", []))
    if len(tags) > VHOST_TAGS_MAX:
        raise PreconditionFailed(f"a vhost has at most {VHOST_TAGS_MAX} tags")
    for tag in tags:
        if not tag or utf8_size(tag) > SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(f"a tag has 1 to {SHORT_STRING_BYTES_MAX} bytes")
    _type_name(changes.get("default_queue_type"))
    for name in _SWITCHES:
        if not isinstance(changes.get(name, False), bool):
            raise PreconditionFailed(f"{name} of a vhost must be true or false")


def tag_list(tags: object) -> list[str]:
    """Return tags from a list, or from a comma-separated string.

    Raises: PreconditionFailed (406) for anything else.
    """
    if isinstance(tags, str):
        return [tag.strip() for tag in tags.split(",") if tag.strip()]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise PreconditionFailed("tags must be a list of strings")
    return list(tags)


def _type_name(value: object) -> str:
    """Return a default queue type, empty for none.  Raises: PreconditionFailed (406)."""
    if value is None or value == "":
        return ""
    kind = _TYPE_NAMES.get(value, value) if isinstance(value, str) else ""
    if kind in QUEUE_TYPES or (isinstance(value, str) and kind == ""):
        return kind
    raise PreconditionFailed(f"'{value}' is not a queue type")
