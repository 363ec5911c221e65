"""Declaring, deleting and binding exchanges in a virtual host.

Operations raise the domain's errors with RabbitMQ's texts; the session closes the channel.  What
must survive a crash is written to the journal here, and `turn.reply_group` tells the session what
its reply must wait for.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.core.turn import Link
from leveret.broker.policy.keys import utf8_size
from leveret.broker.queue.queue import Queue
from leveret.broker.topology.binding import Binding, binding_identity, binding_record
from leveret.broker.topology.exchange import Exchange
from leveret.broker.topology.exchanges import check_exchange_type, make_exchange
from leveret.broker.topology.exchanges.numbers import check_exchange_numbers
from leveret.broker.values.arguments import Arguments, check_same, differs, type_name
from leveret.broker.vhost.delays import Delays
from leveret.broker.vhost.exclusive import existing_queue
from leveret.broker.vhost.policies import Policies
from leveret.broker.vhost.replies import is_reply_name
from leveret.broker.vhost.state import VhostState
from leveret.errors import AccessRefused, NotFound, PreconditionFailed
from leveret.limits import (
    BINDINGS_PER_EXCHANGE_MAX,
    EXCHANGES_PER_VHOST_MAX,
    SHORT_STRING_BYTES_MAX,
)
from leveret.names import Name, check_new
from leveret.routing.keys import check_strict_binding_key
from leveret.store.records.definition import Definition

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
    """The exchanges of one vhost and their bindings."""

    def __init__(
        self,
        vhost: VhostState,
        policies: Policies,
        delays: Delays,
        by_name: dict[str, Exchange],
        queues: dict[str, Queue],
    ) -> None:
        self._vhost: Final = vhost
        self._turn: Final = vhost.turn
        self._policies: Final = policies
        self._delays: Final = delays
        self.by_name: Final = by_name
        self._queues: Final = queues
        #: The bindings to each queue that has any, which go when it is deleted.
        self._queue_bindings: Final[dict[Queue, dict[Binding, None]]] = {}
        self.count_max: i64 = EXCHANGES_PER_VHOST_MAX
        self.bindings_max: i64 = BINDINGS_PER_EXCHANGE_MAX
        for name, kind in _PREDECLARED:
            by_name[name] = make_exchange(name, kind, True, False, False, {})

    def existing(self, name: Name) -> Exchange:
        """Return an exchange.  Raises: NotFound (404)."""
        exchange = self.by_name.get(name)
        if exchange is None:
            raise NotFound(f"no {self._vhost.exchange_label(name)}")
        return exchange

    def _queue(self, name: Name, link: Link | None) -> Queue:
        return existing_queue(self._vhost, self._queues, name, link)

    def purge_delayed(self, name: Name) -> i64:
        """Drop all delayed messages of an exchange; return their number.

        Raises: NotFound (404).
        """
        store = self.existing(name).delayed
        return 0 if store is None else store.purge()

    def cancel_delayed(self, name: Name, sequence: i64) -> bool:
        """Drop a delayed message by its id; return whether it existed.

        Raises: NotFound (404) for an exchange that does not exist.
        """
        store = self.existing(name).delayed
        return store is not None and store.cancel(sequence)

    # -- exchanges --------------------------------------------------------------------------------

    def declare(
        self,
        name: Name,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Arguments,
    ) -> Exchange:
        """Declare an exchange, or check that the one of this name is equivalent.

        Raises: AccessRefused (403) for `""` and new `amq.` names; PreconditionFailed (406) for a
        new name with control characters, an unknown type or a difference.
        """
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")
        current = self.by_name.get(name)
        if current is not None:
            self._check_same(current, kind, durable, auto_delete, internal, arguments)
            self._vhost.wait_for_definition(current.durable, current.define_group)
            return current
        check_new(name, "exchange")
        if name.startswith("amq."):
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        return self.create(name, kind, durable, auto_delete, internal, arguments)

    def create(
        self,
        name: Name,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Arguments,
    ) -> Exchange:
        """Create an exchange, whose name may be one that clients cannot declare.

        Raises: PreconditionFailed (406) for a bad type or argument, or one exchange too many.
        """
        self._check_alternate(arguments, name)
        check_exchange_numbers(kind, arguments, self._vhost.exchange_label(name))
        if len(self.by_name) >= self.count_max:
            raise PreconditionFailed(f"a vhost has at most {self.count_max} exchanges")
        exchange = make_exchange(name, kind, durable, auto_delete, internal, arguments)
        # One that is not durable is shown and exported like the others.
        definition = Definition("exchange", exchange.definition(self._vhost.name))
        self.add(exchange)
        self._policies.govern_exchange(exchange)
        self._delays.equip(exchange)
        if durable:
            self._turn.journal.define_made(definition)
            exchange.define_group = self._turn.journal.group
            self._turn.recorded()
        return exchange

    def add(self, exchange: Exchange) -> None:
        """Add a new exchange to the vhost, without checks and without a record in the journal."""
        self._turn.changes += 1
        exchange.equip(self._turn)
        self.by_name[exchange.name] = exchange
        self._vhost.revision += 1

    def _check_alternate(self, arguments: Arguments, name: str) -> None:
        alternate = arguments.get("alternate-exchange")
        if alternate is not None and not isinstance(alternate, str):
            raise PreconditionFailed(
                f"invalid type '{type_name(alternate)}' for arg 'alternate-exchange' in "
                f"{self._vhost.exchange_label(name)}"
            )

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
        if current.durable != durable:
            raise differs("durable", where, durable, current.durable)
        if current.auto_delete != auto_delete:
            raise differs("auto_delete", where, auto_delete, current.auto_delete)
        if current.internal != internal:
            raise differs("internal", where, internal, current.internal)
        check_same(
            "alternate-exchange",
            where,
            arguments.get("alternate-exchange"),
            current.arguments.get("alternate-exchange"),
        )

    def delete(self, name: Name, if_unused: bool) -> None:
        """Delete an exchange; do nothing if it does not exist (behaviour 34).

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

    def _drop(self, exchange: Exchange) -> None:
        self._turn.changes += 1
        exchange.deleted = True
        del self.by_name[exchange.name]
        self._vhost.revision += 1
        exchange.drop()
        if exchange.durable:
            self._journal_delete(exchange)
        for binding in list(exchange.bindings.values()):
            self._forget_destination(binding)
        exchange.bindings.clear()
        for binding in list(exchange.bound_from):
            self.remove(binding, False)
        exchange.bound_from.clear()

    def _journal_delete(self, exchange: Exchange) -> None:
        """Journal, in one record, that an exchange and its delayed messages are deleted."""
        journal = self._turn.journal
        name: Arguments = {"vhost": self._vhost.name, "name": exchange.name}
        store = exchange.delayed
        if store is None:
            journal.delete("exchange", name)
        else:
            journal.begin_tx()
            journal.delete("exchange", name)
            journal.delete("queue", store.definition(self._vhost.name))
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
    ) -> None:
        """Bind a queue or an exchange to `source_name`; do nothing if that binding exists.

        Raises: AccessRefused (403) for the default exchange; NotFound (404); ResourceLocked (405);
        PreconditionFailed (406) for a key or arguments that the exchange cannot take.
        """
        self._check_bindable(source_name, destination_name, to_queue)
        if to_queue and is_reply_name(destination_name):
            raise AccessRefused(
                f"cannot bind direct reply-to {self._vhost.queue_label(destination_name)}"
            )
        # Where both ends are missing RabbitMQ names the source.
        source = self.existing(source_name)
        if not to_queue:
            self.existing(destination_name)
        elif self._queue(destination_name, link).hidden:
            # It would refuse every message, and the publishers to the exchange would get a nack.
            raise AccessRefused(
                f"cannot bind staging {self._vhost.queue_label(destination_name)}: messages come "
                "to it by the default exchange only"
            )
        if self._vhost.strict_keys and source.has_patterns:
            check_strict_binding_key(binding_key)
        identity = binding_identity(to_queue, destination_name, binding_key, arguments)
        current = source.bindings.get(identity)
        if current is not None:
            self._vhost.wait_for_definition(current.durable, current.define_group)
            return
        if len(source.bindings) >= self.bindings_max:
            raise PreconditionFailed(f"an exchange has at most {self.bindings_max} bindings")
        if utf8_size(binding_key) > SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(
                f"the routing key of a binding has at most {SHORT_STRING_BYTES_MAX} bytes"
            )
        definition = Definition(
            "binding",
            binding_record(
                self._vhost.name, source_name, destination_name, to_queue, binding_key, arguments
            ),
        )
        binding = self.restore_binding(source, destination_name, to_queue, binding_key, arguments)
        if binding.durable:
            self._turn.journal.define_made(definition)
            binding.define_group = self._turn.journal.group
            self._turn.recorded()
        self._vhost.bound(binding)

    def restore_binding(
        self,
        source: Exchange,
        destination_name: str,
        to_queue: bool,
        binding_key: str,
        arguments: Arguments,
    ) -> Binding:
        """Return a new binding between ends that exist, without checks and without a record.

        Raises: PreconditionFailed (406) for arguments that the exchange's type cannot take.
        """
        queue = self._queues[destination_name] if to_queue else None
        exchange = None if to_queue else self.by_name[destination_name]
        binding = Binding(source, queue, exchange, binding_key, arguments)
        self._turn.changes += 1
        source.add(binding)
        source.bindings[binding.identity] = binding
        if queue is not None:
            self._queue_bindings.setdefault(queue, {})[binding] = None
        elif exchange is not None:
            exchange.bound_from[binding] = None
        self._vhost.revision += 1
        return binding

    def bindings_to(self, queue: Queue) -> list[Binding]:
        """Return the bindings to a queue."""
        return list(self._queue_bindings.get(queue, ()))

    def unbind_queue(self, queue: Queue) -> None:
        """Remove the bindings to a queue that is deleted; its record stands for them too."""
        for binding in self.bindings_to(queue):
            self.remove(binding, False)
        self._queue_bindings.pop(queue, None)

    def clear(self) -> None:
        """Release all exchanges, because the vhost is deleted."""
        for exchange in self.by_name.values():
            exchange.deleted = True
            exchange.drop()
        self.by_name.clear()
        self._queue_bindings.clear()

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
        """Remove a binding; do nothing if it does not exist (behaviour 35).

        Raises: AccessRefused (403) for the default exchange; ResourceLocked (405).
        """
        self._check_bindable(source_name, destination_name, to_queue)
        source = self.by_name.get(source_name)
        if source is None:
            self._vhost.wait_for_removal()
            return
        identity = binding_identity(to_queue, destination_name, binding_key, arguments)
        binding = source.bindings.get(identity)
        if binding is None:
            self._vhost.wait_for_removal()
            return
        if to_queue:
            self._queue(destination_name, link)
        self.remove(binding, True)
        self._forget_destination(binding)

    def _forget_destination(self, binding: Binding) -> None:
        """Remove `binding` from the list that its destination keeps."""
        if binding.queue is not None:
            bindings = self._queue_bindings.get(binding.queue)
            if bindings is not None:
                bindings.pop(binding, None)
                if not bindings:
                    del self._queue_bindings[binding.queue]
        elif binding.exchange is not None:
            binding.exchange.bound_from.pop(binding, None)

    def remove(self, binding: Binding, journaled: bool) -> None:
        """Remove `binding` from its source; an auto-delete source is deleted with its last binding.

        `journaled` is False where the record of an end's delete stands for the binding too.
        """
        source = binding.source
        self._turn.changes += 1
        if source.bindings.pop(binding.identity, None) is None:
            return
        source.remove(binding)
        self._vhost.revision += 1
        if binding.durable and journaled:
            self._turn.journal.delete("binding", binding.definition(self._vhost.name))
            self._vhost.removed()
        if source.auto_delete and not source.bindings and not source.deleted:
            self._drop(source)
