"""A binding: a source exchange, a destination (queue or exchange), a key and arguments.

All four are its identity: the same pair with another key or other arguments is a second binding
(behaviour 36: binding identity).
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

#: Longer arguments are kept encoded, as in a record, and decoded on each access: decoded, many
#: small entries take five times as much memory.
_DECODED_BYTES_MAX: Final = 512

#: Its place among the bindings of a queue from exchanges that choose one binding.
_CHOICE_BYTES: Final = 240


def binding_identity(
    to_queue: bool, destination: str, binding_key: str, arguments: dict[str, object]
) -> tuple[bool, str, str, bytes]:
    """Return the identity of a binding of one source; the order of arguments does not matter."""
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
        #: The user for whom it counts; None for an imported binding, or one recorded by an earlier
        #: release.
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
        #: The memory that it takes, without its place in the index of its source.
        self.bytes: i64 = (
            BINDING_BYTES
            + i64(sys.getsizeof(binding_key))
            + i64(len(self._packed))
            + table_bytes(self._arguments)
        )
        if source.chooses and queue is not None:
            self.bytes += _CHOICE_BYTES
        #: Its own memory in the index of its source, if that is counted by binding.
        self.index_bytes: i64 = 0
        #: True if its definition survives a restart: both ends are durable.
        self.durable: Final = source.durable and (
            (queue is not None and queue.durable and not queue.exclusive)
            or (exchange is not None and exchange.durable)
        )
        #: The group of the journal that holds its definition.
        self.define_group: i64 = 0

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments; callers must not change them."""
        return (
            read_table(self._packed, 0, len(self._packed))[0] if self._packed else self._arguments
        )

    def is_packed(self) -> bool:
        """Return whether the arguments are decoded on each access."""
        return len(self._packed) > 0

    def is_there(self) -> bool:
        """Return whether its source still has it."""
        return self.source.bindings.get(self.identity) is self

    def has_ended(self) -> bool:
        """Return whether an end is deleted: then it routes nothing and is about to be removed."""
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
