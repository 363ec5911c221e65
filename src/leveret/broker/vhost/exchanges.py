"""Declares, deletes and binds exchanges in a virtual host.

Operations raise the domain's errors with RabbitMQ's texts; the session closes the channel.  Durable
changes are journaled here, and `Syncs.reply_group` is the group that the session's reply must wait
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import Arguments, check_same, differs
from leveret.broker.delayed.delayed import DelayedMessages
from leveret.broker.exchanges.binding import Binding, binding_identity
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.exchanges.types import check_exchange_type, make_exchange
from leveret.broker.ownership import Owner
from leveret.broker.policies.keys import utf8_size
from leveret.broker.queue.queue import Queue, queue_identity
from leveret.broker.queue.quota import count_no_more, count_queue, give_queue
from leveret.broker.quotas import BindingCounts
from leveret.broker.scheduler.costs import (
    BINDING_REMOVED,
    LISTED_PER_COST,
    PASSED_PER_COST,
    QUEUE_DELETED,
)
from leveret.broker.scheduler.link import Link
from leveret.broker.scheduler.task import Task
from leveret.broker.vhost.new_definitions import (
    exchange_bytes,
    new_exchange,
)
from leveret.broker.vhost.replies import is_reply_name
from leveret.errors import AccessRefused, NotFound, PreconditionFailed
from leveret.limits import (
    BINDINGS_PER_EXCHANGE_MAX,
    CHOICES_PER_QUEUE_MAX,
    EXCHANGES_PER_VHOST_MAX,
    SHORT_STRING_BYTES_MAX,
)
from leveret.names import Name, check_new
from leveret.routing.keys import check_strict_binding_key
from leveret.store.records.definition import Definition

if TYPE_CHECKING:
    from leveret.broker.vhost.vhost import Vhost


_PREDECLARED: Final = (
    ("", "direct"),
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
)


@final
class Exchanges:
    """The exchanges of one vhost and their bindings.

    Deleting a queue or an exchange also deletes its bindings, which takes seconds for a million of
    them.  The name of the queue or exchange is free at once.  A binding with a deleted end routes
    nothing, and is in no listing.

    Invariant: an auto-delete exchange is deleted with its last binding, even in a long chain of
    exchanges.
    """

    def __init__(self, vhost: Vhost) -> None:
        self._vhost: Final = vhost
        self._core: Final = vhost.core
        self.by_name: Final[dict[str, Exchange]] = {}
        #: The bindings to each queue that has any; they are removed when it is deleted.
        self._queue_bindings: Final[dict[Queue, dict[Binding, None]]] = {}
        #: The subset of these bindings from exchanges that choose one of their bindings.
        self._queue_choices: Final[dict[Queue, dict[Binding, None]]] = {}
        #: The counts for the quotas of the vhost and of users.
        self.counts: Final = BindingCounts(vhost.use, vhost.core.quotas)
        #: The last task that removes bindings; it may be over.
        self.unbinding: Task | None = None
        #: The bindings to remove for one request while they are gathered; else None.
        self._gathered: list[Exchange | dict[Binding, None]] | None = None
        self.count_max: i64 = EXCHANGES_PER_VHOST_MAX
        self.bindings_max: i64 = BINDINGS_PER_EXCHANGE_MAX
        for name, kind in _PREDECLARED:
            self.by_name[name] = make_exchange(name, kind, True, False, False, {})

    def existing(self, name: Name) -> Exchange:
        """Return an exchange.  Raises: NotFound (404)."""
        exchange = self.by_name.get(name)
        if exchange is None:
            raise NotFound(f"no {self._vhost.exchange_label(name)}")
        return exchange

    def purge_delayed(self, name: Name) -> i64:
        """Drop all delayed messages of an exchange; return their number.

        Raises: NotFound (404).
        """
        store = self.existing(name).delayed
        return 0 if store is None else store.purge()

    def cancel_delayed(self, name: Name, sequence: i64) -> bool:
        """Drop a delayed message by its id; return whether it existed.

        Raises: NotFound (404) for an unknown exchange.
        """
        store = self.existing(name).delayed
        return store is not None and store.cancel(sequence)

    def equip(self, exchange: Exchange, by: Owner | None = None) -> None:
        """Create the store of a delayed exchange, and journal it.

        The messages in the store count for the vhost, and for `by` if it is given.
        """
        if exchange.delays and exchange.delayed is None:
            store = self.restore_delayed(exchange, self._vhost.ids.next_queue_id())
            give_queue(store, by)
            if store.recorded:
                self._core.journal.define("queue", store.definition(self._vhost.name))

    def restore_delayed(self, exchange: Exchange, queue_id: i64) -> DelayedMessages:
        """Create the store of an exchange, without a record in the journal."""
        store = DelayedMessages(self._core, queue_id, exchange.name, exchange.durable)
        store.vhost = self._vhost
        count_queue(store, self._vhost.use)
        exchange.delayed = store
        return store

    # -- exchanges --------------------------------------------------------------------------------

    def declare(
        self,
        name: Name,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Arguments,
        by: Owner | None = None,
    ) -> Exchange:
        """Declare an exchange, or check that the one of this name is equivalent.

        Its delayed messages count for the user `by`.

        Raises: AccessRefused (403) for `""` and new `amq.` names; PreconditionFailed (406) for a
        new name with control characters, an unknown type or a difference.
        """
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")
        current = self.by_name.get(name)
        if current is not None:
            self._check_same(current, kind, durable, auto_delete, internal, arguments)
            self._core.syncs.wait_in_reply(current.define_group)
            return current
        check_new(name, "exchange")
        if name.startswith("amq."):
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        return self.create(name, kind, durable, auto_delete, internal, arguments, by)

    def create(
        self,
        name: Name,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Arguments,
        by: Owner | None = None,
    ) -> Exchange:
        """Create an exchange, also with a name that clients cannot declare.

        Raises: PreconditionFailed (406) for a bad type or argument, or too many exchanges.
        """
        if len(self.by_name) >= self.count_max:
            raise PreconditionFailed(f"a vhost has at most {self.count_max} exchanges")
        exchange, definition = new_exchange(
            self._vhost, name, kind, durable, auto_delete, internal, arguments
        )
        self._vhost.check_definition(exchange_bytes(exchange))
        self.enter(exchange, definition, by)
        return exchange

    def enter(self, exchange: Exchange, definition: Definition, by: Owner | None) -> None:
        """Add a prepared exchange, and journal it; its delayed messages count for `by`.

        The caller has checked that its name is free and that there is room for it.
        """
        self.add(exchange)
        # Before applying the policy, which would create the store without a user.
        self.equip(exchange, by)
        self._vhost.policies.govern_exchange(exchange)
        if exchange.durable:
            self._core.journal.define_made(definition)
            exchange.define_group = self._core.journal.group
            self._core.syncs.recorded()

    def add(self, exchange: Exchange) -> None:
        """Add a new exchange to the vhost, without checks and without a record in the journal."""
        self._core.scheduler.changes += 1
        exchange.equip(self._core)
        before = self.by_name.get(exchange.name)
        if before is not None:
            # A definition is replayed twice.
            self._vhost.account.book(-before.booked)
        exchange.booked = exchange_bytes(exchange)
        self._vhost.account.book(exchange.booked)
        self.by_name[exchange.name] = exchange
        self._vhost.revision += 1

    def restore_deleted(self, name: str) -> None:
        """Remove an exchange that has no bindings yet, without a record."""
        exchange = self.by_name.pop(name, None)
        if exchange is not None:
            self._vhost.account.book(-exchange.booked)

    def _check_same(
        self,
        current: Exchange,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Arguments,
    ) -> None:
        where = self._vhost.exchange_label(current.name)
        if current.kind != kind:
            check_exchange_type(kind)
            raise differs("type", where, kind, current.kind)
        for name, received, there in (
            ("durable", durable, current.durable),
            ("auto_delete", auto_delete, current.auto_delete),
            ("internal", internal, current.internal),
        ):
            if received != there:
                raise differs(name, where, received, there)
        check_same(
            "alternate-exchange",
            where,
            arguments.get("alternate-exchange"),
            current.arguments.get("alternate-exchange"),
        )

    def delete(self, name: Name, if_unused: bool) -> None:
        """Delete an exchange; do nothing if it does not exist (behaviour 34: delete when missing).

        Raises: AccessRefused (403) for predeclared ones; PreconditionFailed (406) when in use.
        """
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")
        if name.startswith("amq."):
            raise AccessRefused(
                f"deletion of system {self._vhost.exchange_label(name)} not allowed"
            )
        exchange = self.by_name.get(name)
        if exchange is None:
            self._vhost.wait_for_removal()
            return
        if if_unused and exchange.bindings:
            raise PreconditionFailed(f"{self._vhost.exchange_label(name)} in use")
        self._drop(exchange)
        self._unbind_all(self._ends_of(exchange))

    def _ends_of(self, exchange: Exchange) -> list[Exchange | dict[Binding, None]]:
        """Return a deleted exchange with the bindings to it; the last ones are removed first."""
        bound_from = exchange.bound_from
        exchange.bound_from = {}
        self._core.scheduler.spent += len(bound_from) // PASSED_PER_COST
        # The sources of these bindings must choose another one soon.
        chosen = {binding: None for binding in bound_from if binding.source.chooses}
        for binding in chosen:
            del bound_from[binding]
        return [exchange, bound_from, chosen]

    def _unbind_all(self, ends: list[Exchange | dict[Binding, None]]) -> None:
        """Remove the bindings of deleted queues and exchanges, or gather them."""
        if self._gathered is None:
            self.unbinding = self._core.scheduler.start(self._unbinding(ends))
        else:
            self._gathered += ends

    def _unbinding(self, ends: list[Exchange | dict[Binding, None]]) -> Iterator[int]:
        """Remove the bindings of deleted queues and exchanges, the last first."""
        while ends:
            end = ends[-1]
            if isinstance(end, Exchange):
                if end.bindings:
                    binding = end.bindings.popitem()[1]
                    self.counts.count(binding.made_by, -1)
                    # The index and its bindings refer to each other.  The garbage collector would
                    # free all of them at once, which takes some µs each.
                    end.remove(binding)
                    self.forget_destination(binding)
                else:
                    ends.pop()
            elif end:
                unused = self._take_out(end.popitem()[0])
                if unused is not None:
                    ends += self._ends_of(unused)
            else:
                ends.pop()
            yield BINDING_REMOVED

    def gather_unbinding(self) -> None:
        """Gather the bindings to deleted objects from now on, to remove them by one task."""
        self._gathered = []

    def begin_gathered(self) -> Task:
        """Begin to remove the gathered bindings; return the task, which may be over."""
        gathered = self._gathered or []
        self._gathered = None
        unbinding = self.unbinding = self._core.scheduler.start(self._unbinding(gathered))
        return unbinding

    def _drop(self, exchange: Exchange) -> None:
        """Delete an exchange; its bindings are still to be removed."""
        self._core.scheduler.changes += 1
        exchange.deleted = True
        self._vhost.account.book(-exchange.booked)
        exchange.booked = 0
        del self.by_name[exchange.name]
        self._vhost.revision += 1
        _end(exchange)
        if exchange.durable:
            self._journal_delete(exchange)

    def _journal_delete(self, exchange: Exchange) -> None:
        """Journal, in one record, that an exchange and its delayed messages are deleted."""
        journal = self._core.journal
        name: Arguments = {"vhost": self._vhost.name, "name": exchange.name}
        store = exchange.delayed
        # The deletion of a super stream has begun a transaction, with more deletions.
        begins = store is not None and not journal.in_tx
        if begins:
            journal.begin_tx()
        journal.delete("exchange", name)
        if store is not None:
            journal.delete("queue", store.definition(self._vhost.name))
        if begins:
            journal.end_tx()
        self._vhost.removed()

    # -- bindings ---------------------------------------------------------------------------------

    def bind(
        self,
        source_name: Name,
        destination_name: Name,
        to_queue: bool,
        binding_key: str,
        arguments: Arguments,
        link: Link | None,
        by: Owner | None = None,
    ) -> None:
        """Bind a queue or an exchange, for the user of `link` or for `by`, unless it is bound.

        Raises: AccessRefused (403) for the default exchange; NotFound (404); ResourceLocked (405);
        PreconditionFailed (406) for an invalid key or arguments, or beyond a quota.
        """
        self._check_bindable(source_name, destination_name, to_queue)
        if to_queue and is_reply_name(destination_name):
            raise AccessRefused(
                f"cannot bind direct reply-to {self._vhost.queue_label(destination_name)}"
            )
        # If both ends are missing, RabbitMQ's error names the source.
        source = self.existing(source_name)
        if not to_queue:
            self.existing(destination_name)
        elif self._vhost.queues.existing(destination_name, link).hidden:
            # A staging queue would refuse every message, and publishers to the exchange would get
            # nacks.
            raise AccessRefused(
                f"cannot bind staging {self._vhost.queue_label(destination_name)}: publish "
                "to it through the default exchange"
            )
        if self._vhost.strict_keys and source.has_patterns:
            check_strict_binding_key(binding_key)
        identity = binding_identity(to_queue, destination_name, binding_key, arguments)
        current = source.bindings.get(identity)
        if current is not None and not current.has_ended():
            self._core.syncs.wait_in_reply(current.define_group)
            return
        if len(source.bindings) >= self.bindings_max:
            raise PreconditionFailed(f"an exchange has at most {self.bindings_max} bindings")
        if utf8_size(binding_key) > SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(
                f"the routing key of a binding has at most {SHORT_STRING_BYTES_MAX} bytes"
            )
        if to_queue and source.chooses:
            self._check_choices(self._vhost.queues.by_name[destination_name])
        owner = by if link is None else link.as_owner
        self.counts.check(source_name, 1, owner)
        binding = self._binding(source, destination_name, to_queue, binding_key, arguments, owner)
        self._vhost.check_definition(binding.bytes)
        # Make the definition first, because invalid arguments must change nothing.
        definition = Definition("binding", binding.definition(self._vhost.name))
        self.enter_binding(binding, definition)

    def enter_binding(self, binding: Binding, definition: Definition) -> None:
        """Add a new binding, and journal it; the caller has checked that it is new and has room.

        Raises: PreconditionFailed (406) for arguments that are invalid for the exchange's type.
        """
        self._add_binding(binding)
        self._index(binding.source, False)
        if binding.durable:
            self._core.journal.define_made(definition)
            binding.define_group = self._core.journal.group
            self._core.syncs.recorded()
        self._vhost.bound(binding)

    def _check_choices(self, queue: Queue) -> None:
        """Refuse too many bindings of a queue from exchanges that choose one of their bindings.

        Raises: PreconditionFailed (406).
        """
        if self.choices_of(queue) >= CHOICES_PER_QUEUE_MAX:
            raise PreconditionFailed(
                f"{self._vhost.queue_label(queue.name)} has {CHOICES_PER_QUEUE_MAX} bindings from "
                "exchanges that choose one binding for each message, and cannot have more: for a "
                "greater share of the messages, raise the weight of a binding"
            )

    def restore_binding(
        self,
        source: Exchange,
        destination_name: str,
        to_queue: bool,
        binding_key: str,
        arguments: Arguments,
        owner: Owner | None = None,
    ) -> Binding:
        """Create a binding between existing ends, without checks and without a record.

        Raises: PreconditionFailed (406) for arguments that are invalid for the exchange's type.
        """
        binding = self._binding(source, destination_name, to_queue, binding_key, arguments, owner)
        self._add_binding(binding)
        # No client is connected yet, so this may take long.
        for cost in source.index_on():
            self._core.scheduler.spent += cost
        return binding

    def _index(self, exchange: Exchange, later: bool) -> None:
        """Complete the index of an exchange, as a task if `later` is set.

        A binding to a consistent-hash exchange may have 100,000 points on its ring, which take some
        15 ms to create.  The binding appears in listings and in the journal from the beginning.
        Its share of the messages grows until the index is complete.  Only then does the client get
        a reply.
        """
        if exchange.owes() and (exchange.indexing is None or exchange.indexing.over):
            if later:
                exchange.indexing = self._core.scheduler.start_later(exchange.index_on())
            else:
                exchange.indexing = self._core.scheduler.start(exchange.index_on())

    def _binding(
        self,
        source: Exchange,
        destination_name: str,
        to_queue: bool,
        binding_key: str,
        arguments: Arguments,
        owner: Owner | None,
    ) -> Binding:
        queue = self._vhost.queues.by_name[destination_name] if to_queue else None
        exchange = None if to_queue else self.by_name[destination_name]
        return Binding(source, queue, exchange, binding_key, arguments, owner)

    def _add_binding(self, binding: Binding) -> None:
        """Add a binding to its source and its destination.

        Raises: PreconditionFailed (406) for arguments that are invalid for the exchange's type.
        """
        source = binding.source
        queue = binding.queue
        exchange = binding.exchange
        self._core.scheduler.changes += 1
        old = source.bindings.pop(binding.identity, None)
        if old is not None:
            # This is an old binding to a deleted destination of the same name.
            self._change_index(old, False)
            self.counts.count(old.made_by, -1)
        self._change_index(binding, True)
        source.bindings[binding.identity] = binding
        self.counts.count(binding.made_by, 1)
        if queue is not None:
            self._queue_bindings.setdefault(queue, {})[binding] = None
            if source.chooses:
                self._queue_choices.setdefault(queue, {})[binding] = None
        elif exchange is not None:
            exchange.bound_from[binding] = None
        self._vhost.revision += 1

    def bindings_to(self, queue: Queue, most: int | None = None) -> list[Binding]:
        """Return the bindings to a queue, or the first `most` of them.

        Bindings from deleted exchanges are left out.
        """
        found = list(islice(self._queue_bindings.get(queue, ()), most))
        self._core.scheduler.spent += len(found) // LISTED_PER_COST
        return [binding for binding in found if not binding.source.deleted]

    def copied_bindings_to(self, queue: Queue) -> list[Binding]:
        """Return all bindings to a queue, including those from deleted exchanges."""
        found = list(self._queue_bindings.get(queue, ()))
        self._core.scheduler.spent += len(found) // LISTED_PER_COST
        return found

    def unbind_queue(self, queue: Queue) -> None:
        """Remove the bindings to a deleted queue, whose record includes their removal."""
        bindings = self._queue_bindings.pop(queue, None)
        if bindings is None:
            return
        for binding in self._queue_choices.pop(queue, ()):
            # Such a source must not choose the queue from now on.
            del bindings[binding]
            self._core.scheduler.spent += BINDING_REMOVED
            self.remove(binding, False)
        if bindings:
            self._unbind_all([bindings])

    def choices_of(self, queue: Queue) -> i64:
        """Return how many bindings a queue has from exchanges that choose one of their bindings."""
        return len(self._queue_choices.get(queue, ()))

    def unbind_choices(self, queue: Queue) -> Iterator[int]:
        """Unbind a queue from exchanges that choose one of their bindings, one record for each."""
        while (choices := self._queue_choices.get(queue)) is not None:
            binding = next(iter(choices))
            self.remove(binding, True)
            self.forget_destination(binding)
            yield BINDING_REMOVED

    def release(self) -> Iterator[int]:
        """Release the exchanges of the deleted vhost, whose connections are closed."""
        core = self._core
        while self.by_name:
            exchange = self.by_name.popitem()[1]
            exchange.deleted = True
            store = exchange.delayed
            if store is not None and store.recorded:
                core.journal.delete("queue", queue_identity(self._vhost.name, store))
            _end(exchange)
            core.memory.free_table(exchange.bound_from)
            yield QUEUE_DELETED
            while exchange.bindings:
                binding = exchange.bindings.popitem()[1]
                self.counts.count(binding.made_by, -1)
                exchange.remove(binding)
                yield BINDING_REMOVED

    def end(self) -> None:
        """Drop the tables of the deleted vhost, because even empty ones keep their memory."""
        self.by_name.clear()
        self._queue_bindings.clear()
        self._queue_choices.clear()

    def forget_queue(self, queue: Queue) -> None:
        """Release the bindings to a queue of the deleted vhost, after all its exchanges."""
        self._queue_choices.pop(queue, None)
        bindings = self._queue_bindings.pop(queue, None)
        if bindings is not None:
            self._core.memory.free_table(bindings)

    def _check_bindable(self, source_name: str, destination_name: str, to_queue: bool) -> None:
        if not source_name or (not to_queue and not destination_name):
            raise AccessRefused("operation not permitted on the default exchange")

    def unbind(
        self,
        source_name: Name,
        destination_name: Name,
        to_queue: bool,
        binding_key: str,
        arguments: Arguments,
        link: Link | None,
    ) -> None:
        """Remove a binding; do nothing if it does not exist (behaviour 35: unbind when missing).

        Raises: AccessRefused (403) for the default exchange; ResourceLocked (405).
        """
        self._check_bindable(source_name, destination_name, to_queue)
        source = self.by_name.get(source_name)
        if source is None:
            self._vhost.wait_for_removal()
            return
        identity = binding_identity(to_queue, destination_name, binding_key, arguments)
        binding = source.bindings.get(identity)
        if binding is None or binding.has_ended():
            self._vhost.wait_for_removal()
            return
        if to_queue:
            self._vhost.queues.existing(destination_name, link)
        self.remove(binding, True)
        self.forget_destination(binding)

    def forget_destination(self, binding: Binding) -> None:
        """Remove `binding` from the list of its destination."""
        queue = binding.queue
        if queue is not None:
            for table in (self._queue_bindings, self._queue_choices):
                bindings = table.get(queue)
                if bindings is not None:
                    bindings.pop(binding, None)
                    if not bindings:
                        del table[queue]
        elif binding.exchange is not None:
            binding.exchange.bound_from.pop(binding, None)

    def remove(self, binding: Binding, journaled: bool) -> None:
        """Remove `binding` from its source; an auto-delete source is deleted with its last binding.

        `journaled` is False if the record of an end's deletion includes the binding.
        """
        self._core.scheduler.changes += 1
        if binding.durable and journaled:
            self._core.journal.delete("binding", binding.definition(self._vhost.name))
            self._vhost.removed()
        unused = self._take_out(binding)
        if unused is not None:
            self._unbind_all(self._ends_of(unused))

    def _take_out(self, binding: Binding) -> Exchange | None:
        """Remove a binding from its source; return the source if this has deleted it."""
        source = binding.source
        if not binding.is_there():
            return None
        del source.bindings[binding.identity]
        self.counts.count(binding.made_by, -1)
        if source.deleted:
            # Book nothing, because the deleted source has released everything; but remove the
            # binding from its index, where it would stay in memory.
            source.remove(binding)
            return None
        self._change_index(binding, False)
        self._vhost.revision += 1
        if source.auto_delete and not source.bindings and not source.deleted:
            self._drop(source)
            return source
        return None

    def _change_index(self, binding: Binding, adds: bool) -> None:
        """Add a binding to the index of its source, or remove it, and book the memory.

        Raises: PreconditionFailed (406) for arguments that are invalid for the exchange's type.
        """
        source = binding.source
        size = -source.index_bytes()
        cost = source.index_cost()
        if adds:
            source.add(binding)
            size += binding.bytes
        else:
            source.remove(binding)
            size -= binding.bytes
            # One call may remove a thousand points.
            self._index(source, True)
        self._core.scheduler.spent += source.index_cost() - cost
        size += source.index_bytes()
        source.booked += size
        self._vhost.account.book(size)


def _end(exchange: Exchange) -> None:
    """Free everything that a deleted exchange has in addition to its bindings."""
    exchange.drop()
    if exchange.delayed is not None:
        count_no_more(exchange.delayed)
        exchange.delayed.untie()
