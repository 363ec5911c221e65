"""Declaring a super stream: its parts are prepared slice after slice, and then entered at once.

A partition takes some 40 µs, most of which are the records of its queue and of its binding, so a
thousand of them are long (`core.work`).  Until all are prepared nobody sees any of them, and what
is given up on the way leaves nothing behind.  Entering them takes a fifth of that.

Invariants: all missing parts are created by one record of the journal; what is prepared is entered
only if all names still are what they were when they were looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.admin.super_stream import (
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
from leveret.broker.topology.binding import Binding
from leveret.broker.values.arguments import (
    Arguments,
    check_equivalent,
    check_queue_arguments,
    differs,
)
from leveret.broker.values.queue_attributes import QueueAttributes
from leveret.broker.vhost.new_definitions import (
    NewBinding,
    NewExchange,
    exchange_bytes,
    new_binding,
    new_exchange,
)
from leveret.errors import AccessRefused, NotFound, PreconditionFailed
from leveret.limits import (
    PARTITION_STEPS,
    SHORT_STRING_BYTES_MAX,
    SUPER_STREAM_BYTES_MAX,
    SUPER_STREAM_PARTITIONS_MAX,
    TABLE_BYTES_PER_STEP,
)
from leveret.names import Name, check_new
from leveret.store.records.definition import Definition

if TYPE_CHECKING:
    from leveret.broker.core.ownership import Owner
    from leveret.broker.node.access import Access
    from leveret.broker.queue.queue import Queue
    from leveret.broker.topology.exchange import Exchange
    from leveret.broker.vhost.queues import NewQueue
    from leveret.broker.vhost.vhost import Vhost

#: The argument of a binding by which RabbitMQ's stream clients order partitions.
_ORDER: Final = "x-stream-partition-order"

#: Steps for the rights to a partition, for a look at it, to enter it, and to look for its policies.
_ACCESS_STEPS: Final = 2
_LOOK_STEPS: Final = 4
_ENTER_STEPS: Final = 8
_GOVERN_STEPS: Final = 3

#: Steps for the comparison of a partition's arguments.  Long ones are few in all partitions
#: (`SUPER_STREAM_BYTES_MAX`), and others than those are found to differ at the first one.
_COMPARE_STEPS: Final = 6

#: So many parts are entered in the slice in which they were prepared; more have their own.
_ENTERED_WITH_OTHERS: Final = 64


@final
class SuperStreamDeclare:
    """Declares a super stream, or checks that the existing one is equal.

    A partition that was deleted separately is created again, empty.
    """

    def __init__(
        self,
        vhost: Vhost,
        name: Name,
        arguments: Arguments,
        access: Access | None = None,
        by: Owner | None = None,
    ) -> None:
        """Check what does not depend on other entities; nothing is changed.

        `arguments` are those of each partition, and the number of partitions.  `access` is that of
        the user whose rights are checked; the parts count for `by`.

        Raises: AccessRefused (403) for a name that begins with `amq.`, or without the right to the
        exchange; PreconditionFailed (406) for bad arguments or a name of no fit length.
        """
        where = super_stream_label(vhost, name)
        partitions = partition_count(arguments, where)
        if access is not None:
            access.configure("exchange", name)
            access.read("exchange", name)
        self._vhost: Final = vhost
        self._name: Final = name
        self._where: Final = where
        self._access: Final = access
        self._by: Final = by
        self._wanted: Final = _stream_arguments(arguments, where)
        self._names: Final = partition_names(name, partitions)
        last = self._names[-1].encode("utf-8", "surrogateescape")
        if not name or len(last) > SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(
                f"{where}: its name, or that of a partition, has no fit length"
            )
        if name.startswith("amq."):
            raise AccessRefused(f"super stream name '{name}' contains reserved prefix 'amq.*'")
        #: Whether it was created; known at the end.
        self.is_new = False
        #: Partitions whose rights are checked.
        self._checked: i64 = 0
        #: The exchange that is there, the one that is prepared, and what each name was.
        self._current: Exchange | None = None
        self._exchange: NewExchange | None = None
        self._found: list[Queue | None] = []
        self._begun = False
        self._looked = False
        #: What is prepared, and the memory that is booked for it.
        self._queues: list[NewQueue] = []
        self._bindings: list[NewBinding] = []
        self._booked: i64 = 0
        self._record_bytes: i64 = 0
        #: What is entered and has no policies yet.
        self._ungoverned: list[Queue] = []
        self._entered = False

    def advance(self, last: i64) -> bool:
        """Go on until `Turn.steps` is at `last`; return whether some is left.

        Raises: AccessRefused (403); NotFound (404) where the vhost was deleted meanwhile;
        PreconditionFailed (406) for a difference, a name that another entity has, or more than
        there is room for.  Then nothing is changed.
        """
        try:
            return self._check_access(last) or self._prepare(last) or self._govern(last)
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Let go of what is prepared and not entered."""
        self._vhost.account.book(-self._booked)
        self._booked = 0
        self._record_bytes = 0
        self._queues = []
        self._bindings = []
        self._found = []
        self._exchange = None
        self._begun = False
        self._looked = False

    def _check_access(self, last: i64) -> bool:
        """Check that the user may declare the partitions and bind them."""
        access = self._access
        turn = self._vhost.turn
        while access is not None and self._checked < len(self._names):
            if turn.steps >= last:
                return True
            turn.steps += _ACCESS_STEPS
            name = self._names[self._checked]
            access.configure("queue", name)
            access.write("queue", name)
            self._checked += 1
        return False

    # -- preparing --------------------------------------------------------------------------------

    def _prepare(self, last: i64) -> bool:
        """Prepare what is missing, and enter it at the end."""
        turn = self._vhost.turn
        while not self._entered:
            if self._vhost.deleted:
                raise NotFound(f"no vhost '{self._vhost.name}'")
            if not self._begun:
                self._begin()
            while len(self._found) < len(self._names):
                if turn.steps >= last:
                    return True
                self._look()
            if not self._looked and len(self._queues) > _ENTERED_WITH_OTHERS:
                self._looked = True
                return True
            if self._has_changed():
                self.give_up()
            else:
                self._enter()
        return False

    def _begin(self) -> None:
        """Look at the exchange.  Raises: PreconditionFailed (406)."""
        self._begun = True
        vhost = self._vhost
        current = self._current = vhost.exchanges.by_name.get(self._name)
        if self._name in vhost.queues.by_name:
            raise PreconditionFailed(f"{self._where}: there is a queue of that name")
        if current is None:
            check_new(self._name, "super stream")
            arguments: Arguments = {"x-super-stream": True, PARTITIONS: len(self._names)}
            new = self._exchange = new_exchange(
                vhost, self._name, SUPER_STREAM, True, False, False, arguments
            )
            self._book(exchange_bytes(new.exchange), new.definition)
        else:
            self._check_same(current)

    def _check_same(self, exchange: Exchange) -> None:
        """Check that an exchange is the super stream that is declared again."""
        if not is_super_stream(exchange):
            raise PreconditionFailed(
                f"{self._where}: there is an exchange of that name, and it is none"
            )
        declared = declared_count(exchange)
        if declared != len(self._names):
            raise differs(PARTITIONS, self._where, len(self._names), declared)
        self._vhost.wait_for_definition(exchange.durable, exchange.define_group)

    def _look(self) -> None:
        """Look at the next partition, and prepare it if it is missing.

        Raises: PreconditionFailed (406).
        """
        vhost = self._vhost
        number = len(self._found)
        name = self._names[number]
        queue = vhost.queues.by_name.get(name)
        vhost.turn.steps += _LOOK_STEPS
        if queue is None:
            theirs = {**self._wanted, PARTITION_OF: self._name, PARTITION_NUMBER: number}
            self._prepare_partition(name, number, theirs)
        else:
            if self._current is None or queue.arguments.get(PARTITION_OF) != self._name:
                raise PreconditionFailed(f"{self._where}: there is a queue '{name}' already")
            # What makes it a partition is not compared, and all that it has may be very much.
            vhost.turn.steps += _COMPARE_STEPS
            check_equivalent(queue.arguments, self._wanted, vhost.queue_label(name))
            vhost.wait_for_definition(queue.recorded, queue.define_group)
        self._found.append(queue)

    def _prepare_partition(self, name: Name, number: int, arguments: Arguments) -> None:
        vhost = self._vhost
        source = self._current
        if self._exchange is not None:
            source = self._exchange.exchange
        assert source is not None
        vhost.turn.steps += PARTITION_STEPS
        queue = vhost.queues.prepare(name, QueueAttributes(True, arguments=arguments), self._by)
        self._book(queue.queue.booked, queue.definition)
        order: Arguments = {_ORDER: number}
        made = Binding(source, queue.queue, None, str(number), order, self._by)
        binding = new_binding(vhost, made, order)
        self._book(binding.binding.bytes, binding.definition)
        self._queues.append(queue)
        self._bindings.append(binding)

    def _book(self, memory: i64, definition: Definition) -> None:
        """Book what is prepared as if it were there, with its record.

        Raises: PreconditionFailed (406).
        """
        vhost = self._vhost
        size: i64 = len(definition.payload)
        vhost.turn.steps += size // TABLE_BYTES_PER_STEP
        vhost.check_definition(memory + size)
        vhost.account.book(memory + size)
        self._booked += memory + size
        self._record_bytes += size
        if self._record_bytes > SUPER_STREAM_BYTES_MAX:
            raise PreconditionFailed(
                f"{self._where}: the definitions of its parts have more than "
                f"{SUPER_STREAM_BYTES_MAX} bytes; give it shorter arguments"
            )

    def _has_changed(self) -> bool:
        """Tell whether a name is not what it was when it was looked at."""
        vhost = self._vhost
        queues = vhost.queues.by_name
        vhost.turn.steps += len(self._names) // _LOOK_STEPS
        current = vhost.exchanges.by_name.get(self._name)
        if current is not self._current or self._name in queues:
            return True
        for number, name in enumerate(self._names):
            if queues.get(name) is not self._found[number]:
                return True
        return False

    # -- entering ---------------------------------------------------------------------------------

    def _check_room(self) -> None:
        """Check that all that is prepared may be.  Raises: PreconditionFailed (406)."""
        exchanges = self._vhost.exchanges
        missing = len(self._queues)
        if missing > 0:
            check_new(self._name, "super stream")
            self._vhost.queues.check_room(self._name, missing, self._by)
            exchanges.counts.check(self._name, missing, self._by)
        if self._exchange is not None and len(exchanges.by_name) >= exchanges.count_max:
            raise PreconditionFailed(f"a vhost has at most {exchanges.count_max} exchanges")

    def _enter(self) -> None:
        """Add all that is missing, by one record.  Raises: PreconditionFailed (406)."""
        self._check_room()
        vhost = self._vhost
        exchange, queues, bindings = self._exchange, self._queues, self._bindings
        self.give_up()
        self._entered = True
        vhost.turn.steps += _ENTER_STEPS * len(queues)
        journal = vhost.turn.journal
        journal.begin_tx()
        try:
            if exchange is not None:
                vhost.exchanges.enter(exchange, None)
                self.is_new = True
            for number, new in enumerate(queues):
                vhost.queues.enter(new, self._by)
                vhost.exchanges.enter_binding(bindings[number])
                self._ungoverned.append(new.queue)
        finally:
            journal.end_tx()

    def _govern(self, last: i64) -> bool:
        """Give the new partitions their policies."""
        vhost = self._vhost
        while self._ungoverned:
            if vhost.turn.steps >= last:
                return True
            vhost.turn.steps += _GOVERN_STEPS
            queue = self._ungoverned.pop()
            if not queue.deleted:
                vhost.policies.govern_queue(queue)
        return False


def _stream_arguments(arguments: Arguments, where: str) -> Arguments:
    """Return the checked arguments of each partition."""
    wanted = {key: value for key, value in arguments.items() if key != PARTITIONS}
    if wanted.setdefault("x-queue-type", "stream") != "stream":
        raise PreconditionFailed(f"{where}: its partitions are of the type stream")
    check_queue_arguments(wanted, where)
    # Each part is made with them, and some numbers are longer than others.
    longest: Arguments = {**wanted, PARTITION_OF: "", PARTITION_NUMBER: SUPER_STREAM_PARTITIONS_MAX}
    Definition("super_stream", {"arguments": longest})
    return wanted
