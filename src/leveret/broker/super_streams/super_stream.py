"""Super streams, which have several partitions, each of which is a stream.

    exchange `orders`, type x-super-stream ── 0 ─► stream `orders-0`
                                           ── 1 ─► stream `orders-1`
                                           ── 2 ─► stream `orders-2`

A super stream consists of these entities alone: an argument of the exchange gives the number of
partitions, and the binding keys their order.  Publishers publish to the exchange, and the hash of
the routing key selects the partition.  Consumers read single partitions, or all of them under the
super stream's name (`reader`).  The number of partitions never changes, because keys would move
between partitions.

Super streams are declared in `declare`.

Invariant: a super stream is created, and deleted, by one record of the journal.

Source: RabbitMQ's super streams, whose parts are declared by a stream client or by
`rabbitmq-streams`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import Arguments, type_name
from leveret.broker.scheduler.costs import LOOKED_AT_PER_COST, PARTITION_LOOKED_AT
from leveret.broker.scheduler.task import after
from leveret.broker.stream.stream import Stream
from leveret.broker.users.permissions import CONFIGURE, READ
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import SUPER_STREAM_PARTITIONS_KEPT_MAX, SUPER_STREAM_PARTITIONS_MAX
from leveret.names import Name

if TYPE_CHECKING:
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.users.access import Access
    from leveret.broker.vhost.vhost import Vhost

#: The type of a super stream's exchange.
SUPER_STREAM: Final = "x-super-stream"

#: The argument of `queue.declare`, and of the exchange, that gives the number of partitions.
PARTITIONS: Final = "x-super-stream-partitions"

#: Arguments of a partition: its super stream, and its number.
PARTITION_OF: Final = "x-super-stream"
PARTITION_NUMBER: Final = "x-super-stream-partition"


#: The maximum number of bindings from exchanges that choose one of their bindings that are removed
#: at once, together with all parts.
_CHOICES_AT_ONCE: Final = 512


def partition_names(name: str, partitions: int) -> list[Name]:
    """Return the names of the partitions of a super stream."""
    return [Name(f"{name}-{number}") for number in range(partitions)]


def partition_count(vhost: Vhost, name: str, arguments: Arguments) -> int:
    """Return the number of partitions in the arguments of a declare.

    An existing super stream may have more partitions than a new one.

    Raises: PreconditionFailed (406).
    """
    where = super_stream_label(vhost, name)
    value = arguments.get(PARTITIONS)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _invalid(where, f"expected integer, got {type_name(value)}")
    exchange = find_super_stream(vhost, name)
    kept = exchange is not None and value == declared_count(exchange)
    if not kept and not 1 <= value <= SUPER_STREAM_PARTITIONS_MAX:
        raise _invalid(where, f"expected 1 to {SUPER_STREAM_PARTITIONS_MAX}, got {value}")
    return value


def _invalid(where: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{PARTITIONS}' for {where}: \"{why}\"")


def super_stream_label(vhost: Vhost, name: str) -> str:
    """Return the description of a super stream for error messages."""
    return f"super stream '{name}' in vhost '{vhost.name}'"


# -- finding ---------------------------------------------------------------------------------------


def find_super_stream(vhost: Vhost, name: str) -> Exchange | None:
    """Return the exchange of a super stream, or None."""
    exchange = vhost.exchanges.by_name.get(name)
    return exchange if exchange is not None and is_super_stream(exchange) else None


def super_stream_names(vhost: Vhost) -> list[str]:
    """Return the names of a vhost's super streams."""
    vhost.core.scheduler.spent += len(vhost.exchanges.by_name) // LOOKED_AT_PER_COST
    return [name for name, exchange in vhost.exchanges.by_name.items() if is_super_stream(exchange)]


def is_super_stream(exchange: Exchange) -> bool:
    """Return whether an exchange was declared as a super stream, with its partitions."""
    return exchange.kind == SUPER_STREAM and PARTITIONS in exchange.arguments


def partitions_of(vhost: Vhost, exchange: Exchange) -> list[Stream]:
    """Return the existing partitions of a super stream, in order."""
    found: list[Stream] = []
    names = partition_names(exchange.name, declared_count(exchange))
    vhost.core.scheduler.spent += PARTITION_LOOKED_AT * len(names)
    for name in names:
        queue = vhost.queues.by_name.get(name)
        if isinstance(queue, Stream):
            found.append(queue)
    return found


def declared_count(exchange: Exchange) -> int:
    """Return the number of partitions of a super stream."""
    value = exchange.arguments.get(PARTITIONS)
    # An older release did not limit the number.
    return min(value, SUPER_STREAM_PARTITIONS_KEPT_MAX) if isinstance(value, int) else 0


def partition_arguments(streams: list[Stream]) -> Arguments:
    """Return the arguments with which each partition of a super stream was declared."""
    if not streams:
        return {}
    own = (PARTITION_OF, PARTITION_NUMBER)
    return {key: value for key, value in streams[0].arguments.items() if key not in own}


def waiting_in(streams: list[Stream]) -> int:
    """Return the number of messages in all of these streams."""
    return sum([int(stream.ready_count()) for stream in streams])


# -- permissions -----------------------------------------------------------------------------------


def permitted_partitions(
    access: Access | None, vhost: Vhost, name: Name, what: int
) -> Generator[int, None, list[Stream]]:
    """Return the partitions, after checking the user's permission to *read* or to *configure* them.

    The pattern of a permission may take milliseconds for each name.  If partitions or permissions
    change in the meantime, they are checked again, so that the result is valid when it is returned.
    `access` is None for a user with all permissions.

    Raises: AccessRefused (403); NotFound (404) if there is no such super stream.
    """
    checked: list[Stream] | None = None
    revision: i64 = -1
    while True:
        exchange = None if vhost.deleted else find_super_stream(vhost, name)
        if exchange is None:
            raise NotFound(f"no {super_stream_label(vhost, name)}")
        streams = partitions_of(vhost, exchange)
        if access is None or (streams == checked and access.revision == revision):
            return streams
        checked, revision, listed = streams, access.revision, vhost.revision
        access.check(what, "queue" if what == READ else "exchange", name)
        for stream in streams:
            access.check(what, "queue", stream.name)
            yield 1
        if vhost.revision == listed and access.revision == revision:
            return streams


# -- deleting --------------------------------------------------------------------------------------


def delete_super_stream(
    vhost: Vhost, name: Name, if_unused: bool, if_empty: bool, access: Access | None
) -> Generator[int, None, int]:
    """Delete a super stream with its partitions; return the number of their messages.

    All parts are deleted by one record, if all conditions of the delete are true at that moment.
    Exchanges that choose one of their bindings for each message must not choose a deleted
    partition.  If there are many such bindings, they are removed first, each as if the client had
    removed it.  Other bindings, consumers and messages are removed afterwards.  `access` has the
    permissions of the user.

    Raises: AccessRefused (403); NotFound (404); PreconditionFailed (406) if it is in use or not
    empty.
    """
    exchanges = vhost.exchanges
    if access is not None:
        # Check this first, because a refusal must not reveal whether the super stream exists.
        access.configure("exchange", name)
    while True:
        streams = yield from permitted_partitions(access, vhost, name, CONFIGURE)
        waiting = _check_unused(vhost, name, streams, if_unused, if_empty)
        parts = [stream for stream in streams if stream.arguments.get(PARTITION_OF) == name]
        choices: i64 = 0
        for stream in parts:
            choices += exchanges.choices_of(stream)
        if choices <= _CHOICES_AT_ONCE:
            break
        for stream in parts:
            yield from exchanges.unbind_choices(stream)
    core = vhost.core
    exchanges.gather_unbinding()
    core.journal.begin_tx()
    try:
        exchanges.delete(name, False)
        for stream in parts:
            vhost.queues.drop(stream)
    finally:
        core.journal.end_tx()
        unbinding = exchanges.begin_gathered()
    yield from after(unbinding)
    core.syncs.reply_group = max(core.syncs.reply_group, unbinding.group)
    return waiting


def _check_unused(
    vhost: Vhost, name: str, streams: list[Stream], if_unused: bool, if_empty: bool
) -> int:
    """Return the number of messages.  Raises: PreconditionFailed (406)."""
    where = super_stream_label(vhost, name)
    for stream in streams if if_unused else []:
        if stream.consumers:
            raise PreconditionFailed(f"{where} in use")
    waiting = waiting_in(streams)
    if if_empty and waiting > 0:
        raise PreconditionFailed(f"{where} not empty")
    return waiting
