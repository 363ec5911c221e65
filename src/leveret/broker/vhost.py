"""A virtual host: its exchanges, queues and bindings, and the operations of AMQP on them.

Operations raise the domain's errors with RabbitMQ's texts; the session closes the channel.  What
must survive a crash is written to the journal here, and `turn.reply_group` tells the session what
its reply must wait for.

Invariants: `revision` changes with everything that could change a route, so that routes remembered
under an older revision are dead; a deleted queue is in no exchange's index.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.arguments import (
    Arguments,
    check_equivalent,
    check_queue_arguments,
    check_same,
    differs,
)
from leveret.broker.binding import Binding, binding_identity
from leveret.broker.classic import ClassicQueue
from leveret.broker.consumer import Consumer
from leveret.broker.exchange import Exchange, Routing
from leveret.broker.exchanges import make_exchange
from leveret.broker.queue import Queue
from leveret.broker.stream import Stream
from leveret.broker.turn import Link, Turn
from leveret.errors import AccessRefused, NotFound, PreconditionFailed, ResourceLocked
from leveret.limits import (
    BINDINGS_PER_EXCHANGE_MAX,
    EXCHANGES_PER_VHOST_MAX,
    QUEUES_PER_VHOST_MAX,
)
from leveret.message import Message

_PREDECLARED: Final = (
    ("", "direct"),
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
)


def clean_name(name: str) -> str:
    """Return `name` without line ends, as RabbitMQ strips them (behaviour 41)."""
    return name.replace("\r", "").replace("\n", "")


class Ids:
    """Numbers for queues; they grow for the life of the data directory."""

    def __init__(self) -> None:
        self.last_queue_id: i64 = 0

    def next_queue_id(self) -> i64:
        """Return a number that no queue ever had."""
        self.last_queue_id += 1
        return self.last_queue_id

    def used(self, queue_id: i64) -> None:
        """Never give out `queue_id` or anything below it."""
        self.last_queue_id = max(self.last_queue_id, queue_id)


class Vhost:
    """One virtual host."""

    def __init__(self, turn: Turn, ids: Ids, name: str) -> None:
        self.turn = turn
        self.ids = ids
        self.name = name
        self.revision: i64 = 1
        self.queues_max: i64 = QUEUES_PER_VHOST_MAX
        self.exchanges_max: i64 = EXCHANGES_PER_VHOST_MAX
        self.bindings_max: i64 = BINDINGS_PER_EXCHANGE_MAX
        #: The group of the journal that holds the newest removal of a definition.
        self.removed_group: i64 = 0
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        for exchange_name, kind in _PREDECLARED:
            self.exchanges[exchange_name] = make_exchange(
                exchange_name, kind, True, False, False, {}
            )

    # -- names ------------------------------------------------------------------------------------

    def queue_label(self, name: str) -> str:
        """Return how errors speak of a queue."""
        return f"queue '{name}' in vhost '{self.name}'"

    def exchange_label(self, name: str) -> str:
        """Return how errors speak of an exchange."""
        return f"exchange '{name}' in vhost '{self.name}'"

    def exchange(self, name: str) -> Exchange:
        """Return an exchange.  Raises: NotFound (404)."""
        name = clean_name(name)
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no {self.exchange_label(name)}")
        return exchange

    def queue(self, name: str, link: Link | None) -> Queue:
        """Return a queue that `link` may use.

        Raises: NotFound (404); ResourceLocked (405) for another link's exclusive queue.
        """
        name = clean_name(name)
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"no {self.queue_label(name)}")
        self._check_owner(queue, link)
        return queue

    def _check_owner(self, queue: Queue, link: Link | None) -> None:
        if queue.owner is not None and queue.owner is not link:
            raise self._locked(queue.name)

    def _locked(self, name: str) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked {self.queue_label(name)}. It could be "
            "originally declared on another connection or the exclusive property value does not "
            "match that of the original declaration."
        )

    # -- exchanges --------------------------------------------------------------------------------

    def declare_exchange(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Arguments,
    ) -> Exchange:
        """Declare an exchange, or check that it is there and the same.

        Raises: AccessRefused (403) for `""` and new `amq.` names; PreconditionFailed (406) for an
        unknown type or a difference.
        """
        name = clean_name(name)
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")
        current = self.exchanges.get(name)
        if current is not None:
            self._check_same_exchange(current, kind, durable, auto_delete, internal, arguments)
            self._wait_for_definition(current.durable, current.define_group)
            return current
        if name.startswith("amq."):
            raise AccessRefused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
        self._check_alternate(arguments, name)
        if len(self.exchanges) >= self.exchanges_max:
            raise PreconditionFailed(f"a vhost has at most {self.exchanges_max} exchanges")
        exchange = make_exchange(name, kind, durable, auto_delete, internal, arguments)
        self.exchanges[name] = exchange
        self.revision += 1
        if durable:
            self.turn.journal.define("exchange", exchange.definition(self.name))
            exchange.define_group = self.turn.journal.group
            self.turn.recorded()
        return exchange

    def _check_alternate(self, arguments: Arguments, name: str) -> None:
        alternate = arguments.get("alternate-exchange")
        if alternate is not None and not isinstance(alternate, str):
            raise PreconditionFailed(
                f"invalid arg 'alternate-exchange' for {self.exchange_label(name)}"
            )

    def _check_same_exchange(
        self,
        current: Exchange,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Arguments,
    ) -> None:
        where = self.exchange_label(current.name)
        if current.kind != kind:
            make_exchange("", kind, False, False, False, {})
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

    def _wait_for_definition(self, durable: bool, group: i64) -> None:
        """Let the reply wait for a definition that another connection made a moment ago."""
        if durable and group > self.turn.journal.durable_group:
            self.turn.reply_group = max(self.turn.reply_group, group)

    def _removed(self) -> None:
        """Note that the method at hand wrote the record of a removal."""
        self.removed_group = self.turn.journal.group
        self.turn.recorded()

    def _wait_for_removal(self) -> None:
        """Let the reply wait for what another connection removed a moment ago: gone is gone."""
        if self.removed_group > self.turn.journal.durable_group:
            self.turn.reply_group = max(self.turn.reply_group, self.removed_group)

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        """Delete an exchange; one that is not there is fine (behaviour 34).

        Raises: AccessRefused (403) for predeclared ones; PreconditionFailed (406) when in use.
        """
        name = clean_name(name)
        if not name:
            raise AccessRefused("operation not permitted on the default exchange")
        if name.startswith("amq."):
            raise AccessRefused(f"deletion of system {self.exchange_label(name)} not allowed")
        exchange = self.exchanges.get(name)
        if exchange is None:
            self._wait_for_removal()
            return
        if if_unused and exchange.bindings:
            raise PreconditionFailed(f"{self.exchange_label(name)} in use")
        self._drop_exchange(exchange)

    def _drop_exchange(self, exchange: Exchange) -> None:
        exchange.deleted = True
        del self.exchanges[exchange.name]
        self.revision += 1
        if exchange.durable:
            self.turn.journal.delete("exchange", {"vhost": self.name, "name": exchange.name})
            self._removed()
        for binding in list(exchange.bindings.values()):
            self._forget_destination(binding)
        exchange.bindings.clear()
        for binding in list(exchange.bound_from):
            self._remove(binding)

    # -- bindings ---------------------------------------------------------------------------------

    def bind(
        self,
        source_name: str,
        destination_name: str,
        to_queue: bool,
        binding_key: str,
        arguments: Arguments,
        link: Link | None,
    ) -> None:
        """Bind a queue or an exchange to `source_name`; one that is there already is fine.

        Raises: AccessRefused (403) for the default exchange; NotFound (404); ResourceLocked (405);
        PreconditionFailed (406) for arguments that the exchange's type cannot take.
        """
        source_name = clean_name(source_name)
        destination_name = clean_name(destination_name)
        self._check_bindable(source_name, destination_name, to_queue)
        if to_queue:
            self.queue(destination_name, link)
        else:
            self.exchange(destination_name)
        source = self.exchange(source_name)
        identity = binding_identity(to_queue, destination_name, binding_key, arguments)
        current = source.bindings.get(identity)
        if current is not None:
            self._wait_for_definition(current.durable, current.define_group)
            return
        if len(source.bindings) >= self.bindings_max:
            raise PreconditionFailed(f"an exchange has at most {self.bindings_max} bindings")
        binding = self.restore_binding(source, destination_name, to_queue, binding_key, arguments)
        if binding.durable:
            self.turn.journal.define("binding", binding.definition(self.name))
            binding.define_group = self.turn.journal.group
            self.turn.recorded()

    def restore_binding(
        self,
        source: Exchange,
        destination_name: str,
        to_queue: bool,
        binding_key: str,
        arguments: Arguments,
    ) -> Binding:
        """Return a new binding of ends that are there; nothing is journaled or checked.

        Raises: PreconditionFailed (406) for arguments that the exchange's type cannot take.
        """
        queue = self.queues[destination_name] if to_queue else None
        exchange = None if to_queue else self.exchanges[destination_name]
        binding = Binding(source, queue, exchange, binding_key, arguments)
        source.add(binding)
        source.bindings[binding.identity] = binding
        if queue is not None:
            queue.bindings.append(binding)
        elif exchange is not None:
            exchange.bound_from.append(binding)
        self.revision += 1
        return binding

    def _check_bindable(self, source_name: str, destination_name: str, to_queue: bool) -> None:
        if not source_name or (not to_queue and not destination_name):
            raise AccessRefused("operation not permitted on the default exchange")

    def unbind(
        self,
        source_name: str,
        destination_name: str,
        to_queue: bool,
        binding_key: str,
        arguments: Arguments,
        link: Link | None,
    ) -> None:
        """Remove a binding; one that is not there is fine (behaviour 35).

        Raises: AccessRefused (403) for the default exchange; ResourceLocked (405).
        """
        source_name = clean_name(source_name)
        destination_name = clean_name(destination_name)
        self._check_bindable(source_name, destination_name, to_queue)
        source = self.exchanges.get(source_name)
        if to_queue and destination_name in self.queues:
            self.queue(destination_name, link)
        if source is None:
            self._wait_for_removal()
            return
        identity = binding_identity(to_queue, destination_name, binding_key, arguments)
        binding = source.bindings.get(identity)
        if binding is None:
            self._wait_for_removal()
            return
        self._remove(binding)
        self._forget_destination(binding)

    def _forget_destination(self, binding: Binding) -> None:
        """Take `binding` off its destination's list."""
        if binding.queue is not None:
            binding.queue.bindings.remove(binding)
        elif binding.exchange is not None:
            binding.exchange.bound_from.remove(binding)

    def _remove(self, binding: Binding) -> None:
        """Take `binding` off its source; an auto-delete source goes with its last one."""
        source = binding.source
        if source.bindings.pop(binding.identity, None) is None:
            return
        source.remove(binding)
        self.revision += 1
        if binding.durable:
            self.turn.journal.delete("binding", binding.definition(self.name))
            self._removed()
        if source.auto_delete and not source.bindings and not source.deleted:
            self._drop_exchange(source)

    # -- queues -----------------------------------------------------------------------------------

    def declare_queue(
        self,
        link: Link | None,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        """Declare a queue, or check that it is there and the same.

        Raises: AccessRefused (403) for new `amq.` names; ResourceLocked (405) for another link's
        exclusive queue; PreconditionFailed (406) for bad arguments or a difference.
        """
        name = clean_name(name)
        where = self.queue_label(name)
        current = self.queues.get(name)
        if current is not None:
            self._check_same_queue(current, link, durable, exclusive, auto_delete, arguments)
            self._wait_for_definition(current.recorded, current.define_group)
            return current
        if name.startswith("amq."):
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        check_queue_arguments(arguments, where)
        return self._new_queue(link, name, durable, exclusive, auto_delete, arguments)

    def declare_named_by_server(
        self,
        link: Link,
        token: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        """Declare a queue with a name of the broker's making: `amq.gen-` and `token`."""
        name = f"amq.gen-{token}"
        check_queue_arguments(arguments, self.queue_label(name))
        return self._new_queue(link, name, durable, exclusive, auto_delete, arguments)

    def _new_queue(
        self,
        link: Link | None,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        if len(self.queues) >= self.queues_max:
            raise PreconditionFailed(f"a vhost has at most {self.queues_max} queues")
        if arguments.get("x-queue-type") in ("stream", "quorum"):
            self._check_replicated(name, durable, exclusive, auto_delete)
        queue = self.make_queue(
            self.ids.next_queue_id(), name, durable, exclusive, auto_delete, arguments
        )
        if exclusive:
            queue.owner = link
        if queue.recorded:
            self.turn.journal.define("queue", queue.definition(self.name))
            queue.define_group = self.turn.journal.group
            self.turn.recorded()
        return queue

    def _check_replicated(
        self, name: str, durable: bool, exclusive: bool, auto_delete: bool
    ) -> None:
        """Streams and quorum queues are durable and shared, as in RabbitMQ."""
        where = self.queue_label(name)
        if not durable:
            raise PreconditionFailed(f"invalid property 'non-durable' for {where}")
        if exclusive:
            raise PreconditionFailed(f"invalid property 'exclusive-owner' for {where}")
        if auto_delete:
            raise PreconditionFailed(f"invalid property 'auto-delete' for {where}")

    def make_queue(
        self,
        queue_id: i64,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> Queue:
        """Put a queue of the right type into the vhost; nothing is journaled or checked."""
        self.ids.used(queue_id)
        queue: Queue
        if arguments.get("x-queue-type") == "stream":
            queue = Stream(self.turn, queue_id, name, arguments)
        else:
            queue = ClassicQueue(
                self.turn, queue_id, name, durable, exclusive, auto_delete, arguments
            )
        self.queues[name] = queue
        self.revision += 1
        return queue

    def _check_same_queue(
        self,
        current: Queue,
        link: Link | None,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Arguments,
    ) -> None:
        where = self.queue_label(current.name)
        self._check_owner(current, link)
        if current.exclusive != exclusive:
            raise self._locked(current.name)
        if current.durable != durable:
            raise differs("durable", where, durable, current.durable)
        if current.auto_delete != auto_delete:
            raise differs("auto_delete", where, auto_delete, current.auto_delete)
        check_queue_arguments(arguments, where)
        check_equivalent(current.arguments, arguments, where)

    def delete_queue(self, link: Link | None, name: str, if_unused: bool, if_empty: bool) -> i64:
        """Delete a queue; return its waiting messages.  One that is not there gives 0.

        Raises: ResourceLocked (405); PreconditionFailed (406) when in use or not empty.
        """
        if name not in self.queues:
            self._wait_for_removal()
            return 0
        queue = self.queue(name, link)
        if if_unused and queue.consumers:
            raise PreconditionFailed(f"{self.queue_label(name)} in use")
        if if_empty and queue.ready_count() > 0:
            raise PreconditionFailed(f"{self.queue_label(name)} not empty")
        return self.drop_queue(queue)

    def drop_queue(self, queue: Queue) -> i64:
        """Delete `queue` with its bindings; its consumers are told.  Return what waited."""
        if queue.deleted:
            return 0
        queue.deleted = True
        waiting = queue.ready_count()
        del self.queues[queue.name]
        self.revision += 1
        if queue.recorded:
            # The record stands for the bindings too; replay removes them with the queue.
            self.turn.journal.delete(
                "queue", {"vhost": self.name, "name": queue.name, "id": int(queue.queue_id)}
            )
            self._removed()
        for binding in list(queue.bindings):
            self._remove(binding)
        queue.bindings.clear()
        consumers = list(queue.consumers)
        queue.consumers.clear()
        for consumer in consumers:
            queue.detach(consumer)
            self.turn.cancelled.append(consumer)
        queue.drop()
        return waiting

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove a consumer; an auto-delete queue goes with its last one (behaviour 48)."""
        queue = consumer.queue
        if queue.deleted:
            return
        queue.unsubscribe(consumer)
        if queue.auto_delete and not queue.consumers:
            self.drop_queue(queue)

    def retain_streams(self) -> None:
        """Let each stream drop what its retention no longer keeps."""
        for queue in self.queues.values():
            if isinstance(queue, Stream):
                queue.retain()

    # -- messages ---------------------------------------------------------------------------------

    def route(self, exchange: Exchange, routing_key: str, properties: bytes) -> Routing:
        """Return where a message goes; see `Routing` for how long the answer holds."""
        routing = Routing(routing_key, properties)
        if not exchange.name:
            queue = self.queues.get(routing_key)
            if queue is not None:
                routing.take_queue(queue)
            return routing
        routing.run(exchange, self.exchanges)
        return routing

    def publish(self, message: Message, queues: list[Queue]) -> bool:
        """Put `message` into `queues`; tell whether a record holds it, to be synced."""
        journal = self.turn.journal
        persistent = message.persistent
        recorded = False
        for queue in queues:
            sequence = queue.publish(message)
            if queue.recorded and (persistent or queue.keeps_all):
                journal.target(queue.queue_id, sequence)
                recorded = True
        if recorded:
            journal.publish(message)
        return recorded
