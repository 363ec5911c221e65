"""Declares super streams.

A partition takes some 40 µs, mostly for the records of its queue and of its binding, and the limit
on partitions is low enough to create all at once.  Checking permissions and applying policies may
take longer, because their patterns are matched with each name.

Invariant: all missing parts are created by one journal record.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import (
    Arguments,
    check_equivalent,
    check_queue_arguments,
    differs,
)
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.exchanges.binding import Binding
from leveret.broker.scheduler.costs import (
    PARTITION_ACCESS,
    PARTITION_COMPARED,
    PARTITION_ENTERED,
    PARTITION_FOUND,
    PARTITION_GOVERNED,
    PARTITION_PREPARED,
)
from leveret.broker.super_streams.super_stream import (
    PARTITION_NUMBER,
    PARTITION_OF,
    PARTITIONS,
    SUPER_STREAM,
    declared_count,
    is_super_stream,
    partition_count,
    partition_names,
    super_stream_label,
)
from leveret.broker.vhost.new_definitions import (
    exchange_bytes,
    new_exchange,
)
from leveret.errors import AccessRefused, NotFound, PreconditionFailed
from leveret.limits import (
    SHORT_STRING_BYTES_MAX,
    SUPER_STREAM_BYTES_MAX,
    SUPER_STREAM_PARTITIONS_KEPT_MAX,
    TABLE_BYTES_PER_COST,
)
from leveret.names import Name, check_new
from leveret.store.records.definition import Definition

if TYPE_CHECKING:
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.ownership import Owner
    from leveret.broker.queue.queue import Queue
    from leveret.broker.users.access import Access
    from leveret.broker.vhost.vhost import Vhost

#: The binding argument by which RabbitMQ's stream clients order partitions.
_ORDER: Final = "x-stream-partition-order"


def declare_super_stream(
    vhost: Vhost,
    name: Name,
    arguments: Arguments,
    access: Access | None = None,
    by: Owner | None = None,
) -> Generator[int, None, bool]:
    """Declare a super stream, or check that the existing one is equal; return whether it is new.

    A partition that was deleted separately is created again, empty.

    `arguments` are those of each partition, and the number of partitions.  `access` has the
    permissions of the user; the parts count for `by`.

    Raises: AccessRefused (403) for a name that begins with `amq.`, or without permissions for the
    parts; NotFound (404) if the vhost was deleted in the meantime; PreconditionFailed (406) for bad
    arguments, a name that is empty, too long or in use, a difference, or too many parts.  After an
    error nothing is changed.
    """
    where = super_stream_label(vhost, name)
    partitions = partition_count(vhost, name, arguments)
    if access is not None:
        access.configure("exchange", name)
        access.read("exchange", name)
    wanted = _stream_arguments(arguments, where)
    names = partition_names(name, partitions)
    last = names[-1].encode("utf-8", "surrogateescape")
    if not name or len(last) > SHORT_STRING_BYTES_MAX:
        raise PreconditionFailed(f"{where}: its name, or that of a partition, is empty or too long")
    if name.startswith("amq."):
        raise AccessRefused(f"super stream name '{name}' contains reserved prefix 'amq.*'")
    if access is not None:
        for one in names:
            access.configure("queue", one)
            access.write("queue", one)
            yield PARTITION_ACCESS
    parts = _Parts(vhost, name, wanted, by)
    parts.prepare(names)
    parts.enter()
    for queue, _ in parts.queues:
        if not queue.deleted:
            vhost.policies.govern_queue(queue)
        yield PARTITION_GOVERNED
    return parts.exchange is not None


@final
class _Parts:
    """The parts of a super stream: existing ones, and new ones that are prepared."""

    def __init__(self, vhost: Vhost, name: Name, wanted: Arguments, by: Owner | None) -> None:
        self._vhost: Final = vhost
        self._name: Final = name
        self._wanted: Final = wanted
        self._by: Final = by
        self._where: Final = super_stream_label(vhost, name)
        #: The existing exchange, or the prepared one.
        self._current: Final = vhost.exchanges.by_name.get(name)
        self.exchange: tuple[Exchange, Definition] | None = None
        #: The other prepared parts, their memory including their records, and the records' bytes.
        self.queues: Final[list[tuple[Queue, Definition]]] = []
        #: The missing partitions by their numbers.
        self._missing: Final[dict[int, Name]] = {}
        self._bindings: Final[list[tuple[Binding, Definition]]] = []
        self._memory: i64 = 0
        self._record_bytes: i64 = 0

    # -- preparing --------------------------------------------------------------------------------

    def prepare(self, names: list[Name]) -> None:
        """Prepare the missing parts.  Raises: NotFound (404), PreconditionFailed (406)."""
        if self._vhost.deleted:
            raise NotFound(f"no vhost '{self._vhost.name}'")
        self._prepare_exchange(len(names))
        for number, name in enumerate(names):
            self._look(number, name)
        # Check before creating parts that refer to each other, which only the garbage collector
        # frees.
        self._check_room()
        for number, name in self._missing.items():
            self._prepare_partition(name, number)

    def _prepare_exchange(self, partitions: int) -> None:
        """Check or prepare the exchange.  Raises: PreconditionFailed (406)."""
        vhost = self._vhost
        if self._name in vhost.queues.by_name:
            raise PreconditionFailed(f"{self._where}: there is a queue of that name")
        if self._current is None:
            check_new(self._name, "super stream")
            arguments: Arguments = {"x-super-stream": True, PARTITIONS: partitions}
            new = self.exchange = new_exchange(
                vhost, self._name, SUPER_STREAM, True, False, False, arguments
            )
            self._add(exchange_bytes(new[0]), new[1])
        else:
            self._check_same(self._current, partitions)

    def _check_same(self, exchange: Exchange, partitions: int) -> None:
        """Check that an exchange is the super stream being redeclared."""
        if not is_super_stream(exchange):
            raise PreconditionFailed(
                f"{self._where}: there is an exchange of that name, and it is not a super stream"
            )
        declared = declared_count(exchange)
        if declared != partitions:
            raise differs(PARTITIONS, self._where, partitions, declared)
        self._vhost.core.syncs.wait_in_reply(exchange.define_group)

    def _look(self, number: int, name: Name) -> None:
        """Look up a partition.  Raises: PreconditionFailed (406)."""
        vhost = self._vhost
        vhost.core.scheduler.spent += PARTITION_FOUND
        queue = vhost.queues.by_name.get(name)
        if queue is None:
            self._missing[number] = name
            return
        if self._current is None or queue.arguments.get(PARTITION_OF) != self._name:
            raise PreconditionFailed(f"{self._where}: there is a queue '{name}' already")
        # The arguments that make the queue a partition are not compared.
        vhost.core.scheduler.spent += PARTITION_COMPARED
        check_equivalent(queue.arguments, self._wanted, vhost.queue_label(name))
        vhost.core.syncs.wait_in_reply(queue.define_group)

    def _prepare_partition(self, name: Name, number: int) -> None:
        vhost = self._vhost
        vhost.core.scheduler.spent += PARTITION_PREPARED + PARTITION_ENTERED
        arguments = {**self._wanted, PARTITION_OF: self._name, PARTITION_NUMBER: number}
        source = self._current if self.exchange is None else self.exchange[0]
        assert source is not None
        attributes = QueueAttributes(True, arguments=arguments)
        queue, definition = vhost.queues.prepare(name, attributes, self._by)
        self._add(queue.booked, definition)
        self.queues.append((queue, definition))
        order: Arguments = {_ORDER: number}
        binding = Binding(source, queue, None, str(number), order, self._by)
        definition = Definition("binding", binding.definition(vhost.name))
        self._add(binding.bytes, definition)
        self._bindings.append((binding, definition))

    def _add(self, memory: i64, definition: Definition) -> None:
        """Count a prepared part with its record.  Raises: PreconditionFailed (406)."""
        size: i64 = len(definition.payload)
        self._vhost.core.scheduler.spent += size // TABLE_BYTES_PER_COST
        self._memory += memory + size
        self._record_bytes += size
        self._vhost.check_definition(self._memory)
        if self._record_bytes > SUPER_STREAM_BYTES_MAX:
            raise PreconditionFailed(
                f"{self._where}: the definitions of its parts have more than "
                f"{SUPER_STREAM_BYTES_MAX} bytes; give it shorter arguments"
            )

    def _check_room(self) -> None:
        """Check that there is room for all missing parts.  Raises: PreconditionFailed (406)."""
        exchanges = self._vhost.exchanges
        missing = len(self._missing)
        if missing > 0:
            check_new(self._name, "super stream")
            self._vhost.queues.check_room(self._name, missing, self._by)
            exchanges.counts.check(self._name, missing, self._by)
        if self.exchange is not None and len(exchanges.by_name) >= exchanges.count_max:
            raise PreconditionFailed(f"a vhost has at most {exchanges.count_max} exchanges")

    # -- adding -----------------------------------------------------------------------------------

    def enter(self) -> None:
        """Add all prepared parts, by one record."""
        vhost = self._vhost
        journal = vhost.core.journal
        journal.begin_tx()
        try:
            if self.exchange is not None:
                vhost.exchanges.enter(*self.exchange, None)
            for number, (queue, definition) in enumerate(self.queues):
                vhost.queues.enter(queue, definition, self._by)
                vhost.exchanges.enter_binding(*self._bindings[number])
        finally:
            journal.end_tx()


def _stream_arguments(arguments: Arguments, where: str) -> Arguments:
    """Return the checked arguments of each partition."""
    wanted = {key: value for key, value in arguments.items() if key != PARTITIONS}
    if wanted.setdefault("x-queue-type", "stream") != "stream":
        raise PreconditionFailed(f"{where}: its partitions are of the type stream")
    check_queue_arguments(wanted, where)
    # Check the size of the arguments with the longest partition number.
    last = SUPER_STREAM_PARTITIONS_KEPT_MAX - 1
    longest: Arguments = {**wanted, PARTITION_OF: "", PARTITION_NUMBER: last}
    Definition("super_stream", {"arguments": longest})
    return wanted
