"""A super stream: one name for a stream in partitions, each of them a stream of its own.

    exchange `orders`, type x-super-stream ── 0 ─► stream `orders-0`
                                           ── 1 ─► stream `orders-1`
                                           ── 2 ─► stream `orders-2`

It is nothing beside these: the exchange says by its argument how many partitions there are, the
bindings by their keys which is which.  Publishers use the exchange, and the hash of the routing key
names the partition; consumers read single partitions, or all of them by the super stream's name
(`super_reader`).  The number of partitions never changes: keys would move.

Invariant: a super stream is made, and deleted, by one record of the journal.

Source: RabbitMQ's super streams; there a stream client, or `rabbitmq-streams`, declares the parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.stream.stream import Stream
from leveret.broker.values.arguments import (
    Arguments,
    check_equivalent,
    check_queue_arguments,
    differs,
    type_name,
)
from leveret.errors import AccessRefused, NotFound, PreconditionFailed
from leveret.limits import SHORT_STRING_BYTES_MAX, SUPER_STREAM_PARTITIONS_MAX
from leveret.names import Name, check_new
from leveret.store.records.definition import Definition

if TYPE_CHECKING:
    from leveret.broker.node.access import Access
    from leveret.broker.topology.exchange import Exchange
    from leveret.broker.vhost.vhost import Vhost

#: The type of a super stream's exchange.
SUPER_STREAM: Final = "x-super-stream"

#: The argument of `queue.declare`, and of the exchange, that says how many partitions there are.
PARTITIONS: Final = "x-super-stream-partitions"

#: The argument of a binding by which RabbitMQ's stream clients put partitions in order.
_ORDER: Final = "x-stream-partition-order"

#: Arguments of a partition: its super stream, and its number.
_OF: Final = "x-super-stream"
_NUMBER: Final = "x-super-stream-partition"


def partition_names(name: str, partitions: int) -> list[Name]:
    """Return what the partitions of a super stream are called."""
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
    """Return how errors speak of a super stream."""
    return f"super stream '{name}' in vhost '{vhost.name}'"


# -- finding ---------------------------------------------------------------------------------------


def find_super_stream(vhost: Vhost, name: str) -> Exchange | None:
    """Return the exchange of a super stream, or None where there is none."""
    exchange = vhost.exchanges.by_name.get(name)
    return exchange if exchange is not None and is_super_stream(exchange) else None


def super_stream_names(vhost: Vhost) -> list[str]:
    """Return the names of a vhost's super streams."""
    return [name for name, exchange in vhost.exchanges.by_name.items() if is_super_stream(exchange)]


def is_super_stream(exchange: Exchange) -> bool:
    """Tell whether an exchange was declared as a super stream, with its partitions."""
    return exchange.kind == SUPER_STREAM and PARTITIONS in exchange.arguments


def partitions_of(vhost: Vhost, exchange: Exchange) -> list[Stream]:
    """Return the partitions of a super stream that are there, in their order."""
    found: list[Stream] = []
    for name in partition_names(exchange.name, _declared(exchange)):
        queue = vhost.queues.by_name.get(name)
        if isinstance(queue, Stream):
            found.append(queue)
    return found


def _declared(exchange: Exchange) -> int:
    value = exchange.arguments.get(PARTITIONS)
    # An older build took any number.
    return min(value, SUPER_STREAM_PARTITIONS_MAX) if isinstance(value, int) else 0


def partition_arguments(streams: list[Stream]) -> Arguments:
    """Return what each of a super stream's partitions was declared with."""
    if not streams:
        return {}
    own = (_OF, _NUMBER)
    return {key: value for key, value in streams[0].arguments.items() if key not in own}


def waiting_in(streams: list[Stream]) -> i64:
    """Return how many messages all of these hold."""
    count: i64 = 0
    for stream in streams:
        count += stream.ready_count()
    return count


# -- declaring -------------------------------------------------------------------------------------


def check_declare_access(access: Access, name: Name, partitions: int) -> None:
    """Check that a user may declare the parts of a super stream and bind them.

    Raises: AccessRefused (403).
    """
    access.configure("exchange", name)
    access.read("exchange", name)
    for partition in partition_names(name, partitions):
        access.configure("queue", partition)
        access.write("queue", partition)


def check_delete_access(access: Access, vhost: Vhost, name: Name) -> None:
    """Check that a user may delete the parts of a super stream.  Raises: AccessRefused (403)."""
    access.configure("exchange", name)
    exchange = find_super_stream(vhost, name)
    for stream in [] if exchange is None else partitions_of(vhost, exchange):
        access.configure("queue", stream.name)


def declare_super_stream(vhost: Vhost, name: Name, arguments: Arguments) -> bool:
    """Declare a super stream, or check that it is there and the same; tell whether it is new.

    `arguments` are those of each partition, with how many there are.  A partition that was deleted
    by itself is made again, empty.

    Raises: AccessRefused (403) for a name that begins with `amq.`; PreconditionFailed (406) for bad
    arguments, a difference, or a name that something else has.
    """
    where = super_stream_label(vhost, name)
    partitions = partition_count(arguments, where)
    wanted = _stream_arguments(arguments, where)
    names = partition_names(name, partitions)
    if not name or len(names[-1].encode("utf-8", "surrogateescape")) > SHORT_STRING_BYTES_MAX:
        raise PreconditionFailed(f"{where}: its name, or that of a partition, has no fit length")
    if name.startswith("amq."):
        raise AccessRefused(f"super stream name '{name}' contains reserved prefix 'amq.*'")
    exchange = vhost.exchanges.by_name.get(name)
    if exchange is not None:
        _check_same(exchange, partitions, where)
    _check_parts(vhost, exchange is not None, name, names, wanted)
    _make(vhost, name, names, wanted)
    return exchange is None


def _stream_arguments(arguments: Arguments, where: str) -> Arguments:
    """Return the arguments that each partition has, checked."""
    wanted = {key: value for key, value in arguments.items() if key != PARTITIONS}
    if wanted.setdefault("x-queue-type", "stream") != "stream":
        raise PreconditionFailed(f"{where}: its partitions are of the type stream")
    check_queue_arguments(wanted, where)
    # Each part is checked again when it is made, but then others are made already.
    longest: Arguments = {**wanted, _OF: "", _NUMBER: SUPER_STREAM_PARTITIONS_MAX}
    Definition("super_stream", {"arguments": longest})
    return wanted


def _check_same(exchange: Exchange, partitions: int, where: str) -> None:
    """Check that an exchange is that of the super stream which is declared again."""
    if not is_super_stream(exchange):
        raise PreconditionFailed(f"{where}: there is an exchange of that name, and it is none")
    if _declared(exchange) != partitions:
        raise differs(PARTITIONS, where, partitions, _declared(exchange))


def _check_parts(
    vhost: Vhost, is_there: bool, name: Name, names: list[Name], wanted: Arguments
) -> None:
    """Check that all can be made before the first is: what is there already must be a part of it.

    Raises: PreconditionFailed (406).
    """
    where = super_stream_label(vhost, name)
    if name in vhost.queues.by_name:
        raise PreconditionFailed(f"{where}: there is a queue of that name")
    missing = 0
    for number, partition in enumerate(names):
        queue = vhost.queues.by_name.get(partition)
        if queue is None:
            missing += 1
            continue
        if not is_there or queue.arguments.get(_OF) != name:
            raise PreconditionFailed(f"{where}: there is a queue '{partition}' already")
        theirs = {**wanted, _OF: name, _NUMBER: number}
        check_equivalent(queue.arguments, theirs, vhost.queue_label(partition))
    if missing:
        check_new(name, "super stream")
        vhost.queues.check_room(name, missing)
    if not is_there and len(vhost.exchanges.by_name) >= vhost.exchanges.count_max:
        raise PreconditionFailed(f"a vhost has at most {vhost.exchanges.count_max} exchanges")


def _make(vhost: Vhost, name: Name, names: list[Name], wanted: Arguments) -> None:
    """Make what is missing, by one record."""
    journal = vhost.turn.journal
    journal.begin_tx()
    try:
        arguments: Arguments = {"x-super-stream": True, PARTITIONS: len(names)}
        vhost.exchanges.declare(name, SUPER_STREAM, True, False, False, arguments)
        for number, partition in enumerate(names):
            if partition in vhost.queues.by_name:
                continue
            theirs: Arguments = {**wanted, _OF: name, _NUMBER: number}
            vhost.queues.declare(None, partition, True, False, False, theirs)
            vhost.exchanges.bind(name, partition, True, str(number), {_ORDER: number}, None)
    finally:
        journal.end_tx()


# -- deleting --------------------------------------------------------------------------------------


def delete_super_stream(vhost: Vhost, name: Name, if_unused: bool, if_empty: bool) -> i64:
    """Delete a super stream with its partitions; return how many messages they held.

    Raises: NotFound (404); PreconditionFailed (406) when in use or not empty.
    """
    exchange = find_super_stream(vhost, name)
    where = super_stream_label(vhost, name)
    if exchange is None:
        raise NotFound(f"no {where}")
    streams = partitions_of(vhost, exchange)
    waiting = waiting_in(streams)
    for stream in streams if if_unused else []:
        if stream.consumers:
            raise PreconditionFailed(f"{where} in use")
    if if_empty and waiting > 0:
        raise PreconditionFailed(f"{where} not empty")
    journal = vhost.turn.journal
    journal.begin_tx()
    try:
        vhost.exchanges.delete(name, False)
        for stream in streams:
            if stream.arguments.get(_OF) == name:
                vhost.queues.drop(stream)
    finally:
        journal.end_tx()
    return waiting
