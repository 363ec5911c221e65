"""A binding: a source exchange, a destination (queue or exchange), a key and arguments.

Its identity is all four: the same pair under another key or with other arguments is a second
binding (behaviour 36).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import write_table

if TYPE_CHECKING:
    from leveret.broker.queue.queue import Queue
    from leveret.broker.topology.exchange import Exchange


def binding_identity(
    to_queue: bool, destination: str, binding_key: str, arguments: dict[str, object]
) -> tuple[bool, str, str, bytes]:
    """Return what makes a binding of one source unique; arguments count in any order."""
    if not arguments:
        return (to_queue, destination, binding_key, b"")
    writer = BytesWriter()
    write_table(writer, {name: arguments[name] for name in sorted(arguments)})
    return (to_queue, destination, binding_key, writer.getvalue())


def binding_record(
    vhost: str,
    source: str,
    destination: str,
    to_queue: bool,
    binding_key: str,
    arguments: dict[str, object],
) -> dict[str, object]:
    """Return a binding as its journal record holds it."""
    return {
        "vhost": vhost,
        "source": source,
        "destination": destination,
        "destination_type": "queue" if to_queue else "exchange",
        "routing_key": binding_key,
        "arguments": arguments,
    }


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
    ) -> None:
        self.source: Final = source
        self.queue: Final = queue
        self.exchange: Final = exchange
        self.binding_key: Final = binding_key
        self.arguments: Final = arguments
        destination = ""
        if queue is not None:
            destination = queue.name
        elif exchange is not None:
            destination = exchange.name
        self.destination: Final = destination
        #: What makes it unique among the bindings of its source.
        self.identity: Final = binding_identity(
            queue is not None, destination, binding_key, arguments
        )
        #: Part of the definitions that survive a restart: both of its ends are durable.
        self.durable: Final = source.durable and (
            (queue is not None and queue.durable and not queue.exclusive)
            or (exchange is not None and exchange.durable)
        )
        #: The group of the journal that holds its definition.
        self.define_group: i64 = 0

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the binding as its journal record holds it."""
        return binding_record(
            vhost,
            self.source.name,
            self.destination,
            self.queue is not None,
            self.binding_key,
            self.arguments,
        )
