"""A super stream: one name for several partitions, each of which is a stream.

    exchange `orders`, type x-super-stream ── 0 ─► stream `orders-0`
                                           ── 1 ─► stream `orders-1`
                                           ── 2 ─► stream `orders-2`

It consists of these entities alone: an argument of the exchange gives the number of partitions, and
the binding keys give their order.  Publishers publish to the exchange, and the hash of the routing
key selects the partition; consumers read single partitions, or all of them under the super stream's
name (`super_reader`).  The number of partitions never changes, because keys would then move between
them.

Declaring one is in `super_stream_declare`, deleting one in `super_stream_delete`.

Invariant: a super stream is created, and deleted, by one record of the journal.

Source: RabbitMQ's super streams, whose parts are declared by a stream client or by
`rabbitmq-streams`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.stream.stream import Stream
from leveret.broker.values.arguments import Arguments, type_name
from leveret.broker.values.permission import READ
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import SUPER_STREAM_PARTITIONS_MAX
from leveret.names import Name

if TYPE_CHECKING:
    from leveret.broker.node.access import Access
    from leveret.broker.topology.exchange import Exchange
    from leveret.broker.vhost.vhost import Vhost

#: The type of a super stream's exchange.
SUPER_STREAM: Final = "x-super-stream"

#: The argument of `queue.declare`, and of the exchange, that gives the number of partitions.
PARTITIONS: Final = "x-super-stream-partitions"

#: Arguments of a partition: its super stream, and its number.
PARTITION_OF: Final = "x-super-stream"
PARTITION_NUMBER: Final = "x-super-stream-partition"

#: Steps for a look at a partition, with the user's rights to it.
_LOOK_STEPS: Final = 2

#: Exchanges that are looked at in one step, whether they are super streams.
_EXCHANGES_PER_STEP: Final = 16


def partition_names(name: str, partitions: int) -> list[Name]:
    """Return the names of the partitions of a super stream."""
    return [Name(f"{name}-{number}") for number in range(partitions)]


def partition_count(arguments: Arguments, where: str) -> int:
    """Return how many partitions the arguments of a declare ask for.

    Raises: PreconditionFailed (406); `where` names the super stream in the error.
    """
    value = arguments.get(PARTITIONS)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _invalid(where, f"expected integer, got {type_name(value)}")
    if not 1 <= value <= SUPER_STREAM_PARTITIONS_MAX:
        raise _invalid(where, f"expected 1 to {SUPER_STREAM_PARTITIONS_MAX}, got {value}")
    return value


def _invalid(where: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{PARTITIONS}' for {where}: \"{why}\"")


def super_stream_label(vhost: Vhost, name: str) -> str:
    """Return the description of a super stream for error messages."""
    return f"super stream '{name}' in vhost '{vhost.name}'"


# -- finding ---------------------------------------------------------------------------------------


def find_super_stream(vhost: Vhost, name: str) -> Exchange | None:
    """Return the exchange of a super stream, or None if there is none."""
    exchange = vhost.exchanges.by_name.get(name)
    return exchange if exchange is not None and is_super_stream(exchange) else None


def super_stream_names(vhost: Vhost) -> list[str]:
    """Return the names of a vhost's super streams."""
    vhost.turn.steps += len(vhost.exchanges.by_name) // _EXCHANGES_PER_STEP
    return [name for name, exchange in vhost.exchanges.by_name.items() if is_super_stream(exchange)]


def is_super_stream(exchange: Exchange) -> bool:
    """Return whether an exchange was declared as a super stream together with its partitions."""
    return exchange.kind == SUPER_STREAM and PARTITIONS in exchange.arguments


def partitions_of(vhost: Vhost, exchange: Exchange) -> list[Stream]:
    """Return the existing partitions of a super stream, in their order."""
    found: list[Stream] = []
    names = partition_names(exchange.name, declared_count(exchange))
    vhost.turn.steps += _LOOK_STEPS * len(names)
    for name in names:
        queue = vhost.queues.by_name.get(name)
        if isinstance(queue, Stream):
            found.append(queue)
    return found


def declared_count(exchange: Exchange) -> int:
    """Return how many partitions a super stream has."""
    value = exchange.arguments.get(PARTITIONS)
    # An older build did not limit the number.
    return min(value, SUPER_STREAM_PARTITIONS_MAX) if isinstance(value, int) else 0


def partition_arguments(streams: list[Stream]) -> Arguments:
    """Return the arguments with which each partition of a super stream was declared."""
    if not streams:
        return {}
    own = (PARTITION_OF, PARTITION_NUMBER)
    return {key: value for key, value in streams[0].arguments.items() if key not in own}


def waiting_in(streams: list[Stream]) -> i64:
    """Return the number of messages in all of these streams."""
    count: i64 = 0
    for stream in streams:
        count += stream.ready_count()
    return count


# -- rights ----------------------------------------------------------------------------------------


@final
class PartitionAccess:
    """Checks the right to *read* or to *configure* each partition of a super stream, in slices.

    The pattern of a permission may take milliseconds for each of a thousand names.
    """

    def __init__(self, access: Access | None, vhost: Vhost, name: str, what: int) -> None:
        """`access` is None for who may do everything.  Raises: NotFound (404)."""
        self._access: Final = access
        self._vhost: Final = vhost
        self._name: Final = name
        self._what: Final = what
        #: The partitions, and how many of them are checked.
        self.streams: list[Stream] = []
        self._checked: i64 = 0
        #: When they were listed, and the permissions read: the revisions of vhost and access.
        self._listed: i64 = -1
        self._permitted: i64 = -1
        self._begin()

    def advance(self, last: i64) -> bool:
        """Go on until `Turn.steps` is at `last`; return whether some is left.

        Partitions or permissions that have changed meanwhile are checked once more.

        Raises: AccessRefused (403); NotFound (404) where the super stream was deleted meanwhile.
        """
        turn = self._vhost.turn
        access = self._access
        while True:
            while access is not None and self._checked < len(self.streams):
                if turn.steps >= last:
                    return True
                turn.steps += 1
                name = self.streams[self._checked].name
                if self._what == READ:
                    access.read("queue", name)
                else:
                    access.configure("queue", name)
                self._checked += 1
            if self._is_current():
                return False
            self._begin()

    def _is_current(self) -> bool:
        """Tell whether nothing has changed that the check depends on."""
        access = self._access
        permitted = access is None or access.revision == self._permitted
        return permitted and self._vhost.revision == self._listed

    def _begin(self) -> None:
        """List the partitions; what was checked counts where they are the same ones."""
        vhost = self._vhost
        exchange = None if vhost.deleted else find_super_stream(vhost, self._name)
        if exchange is None:
            raise NotFound(f"no {super_stream_label(vhost, self._name)}")
        streams = partitions_of(vhost, exchange)
        permitted = -1 if self._access is None else self._access.revision
        if streams != self.streams or permitted != self._permitted:
            self.streams = streams
            self._checked = 0
        self._listed = vhost.revision
        self._permitted = permitted
