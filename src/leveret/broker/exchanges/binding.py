"""A binding: a source exchange, a destination (queue or exchange), a key and arguments.

All four form its identity: the same source and destination with another key or other arguments are
a second binding (behaviour 36: binding identity).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.ownership import Owner, owner_fields
from leveret.broker.scheduler.accounts import BINDING_BYTES, table_bytes
from leveret.store.records.fields import encoded_table, identity_of, table_identity
from leveret.wire.tables import read_table

if TYPE_CHECKING:
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.queue.queue import Queue

#: Longer arguments are stored encoded, as in a record, and decoded on each access, because many
#: small entries take five times as much memory when decoded.
_DECODED_BYTES_MAX: Final = 512

#: The memory of its entry among a queue's bindings from exchanges that choose one binding.
_CHOICE_BYTES: Final = 240


def binding_identity(
    to_queue: bool, destination: str, binding_key: str, arguments: dict[str, object]
) -> tuple[bool, str, str, bytes]:
    """Return the identity of a binding of one source, for any order of the arguments."""
    return (to_queue, destination, binding_key, table_identity(arguments))


@final
class Binding:
    """One binding of `source`; exactly one of `queue` and `exchange` is the destination."""

    def __init__(
        self,
        source: Exchange,
        queue: Queue | None,
        exchange: Exchange | None,
        binding_key: str,
        arguments: dict[str, object],
        made_by: Owner | None = None,
    ) -> None:
        #: The user it counts for, or None for an imported binding and for one recorded by an
        #: earlier release.
        self.made_by: Final = made_by
        self.source: Final = source
        self.queue: Final = queue
        self.exchange: Final = exchange
        self.binding_key: Final = binding_key
        encoded = encoded_table(arguments)
        packed = len(encoded) > _DECODED_BYTES_MAX
        self._packed: Final[bytes] = encoded if packed else b""
        self._arguments: Final[dict[str, object]] = {} if packed else arguments
        destination = ""
        if queue is not None:
            destination = queue.name
        elif exchange is not None:
            destination = exchange.name
        self.destination: Final = destination
        #: Its identity among the bindings of its source.
        self.identity: Final = (queue is not None, destination, binding_key, identity_of(encoded))
        #: The memory of the binding, without its entry in the index of its source.
        self.bytes: i64 = (
            BINDING_BYTES
            + i64(sys.getsizeof(binding_key))
            + i64(len(self._packed))
            + table_bytes(self._arguments)
        )
        if source.chooses and queue is not None:
            self.bytes += _CHOICE_BYTES
        #: The memory of its entry in the index of its source, if the index counts each binding.
        self.index_bytes: i64 = 0
        #: True if its definition survives a restart, because both ends are durable.
        self.durable: Final = source.durable and (
            (queue is not None and queue.durable and not queue.exclusive)
            or (exchange is not None and exchange.durable)
        )
        #: The group of the journal that contains its definition.
        self.define_group: i64 = 0

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments, which callers must not change."""
        return (
            read_table(self._packed, 0, len(self._packed))[0] if self._packed else self._arguments
        )

    def is_packed(self) -> bool:
        """Return whether the arguments are decoded on each access."""
        return len(self._packed) > 0

    def is_there(self) -> bool:
        """Return whether the source still has this binding."""
        return self.source.bindings.get(self.identity) is self

    def has_ended(self) -> bool:
        """Return whether an end is deleted, so that the binding routes nothing."""
        if self.source.deleted:
            return True
        if self.queue is not None:
            return self.queue.deleted
        return self.exchange is not None and self.exchange.deleted

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the content of the binding's journal record."""
        return {
            "vhost": vhost,
            "source": self.source.name,
            "destination": self.destination,
            "destination_type": "exchange" if self.queue is None else "queue",
            "routing_key": self.binding_key,
            "arguments": self.arguments,
            **owner_fields(self.made_by),
        }
