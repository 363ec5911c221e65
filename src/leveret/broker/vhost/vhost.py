"""A virtual host, which combines its parts, and routes and publishes messages.

Its parts are `exchanges` (with their bindings), `queues`, `policies`, `metadata` and `limits`, each
a class of its own in the module of that name.

Invariant: `revision` changes with everything that could change a route, so that routes cached under
an older revision are invalid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.cc_bcc import blind_copies, carbon_copies, has_copies
from leveret.broker.core import Core
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Exchange, Routing
from leveret.broker.ownership import Owner, foreign
from leveret.broker.publishers.publishers import GIVE_PUBLISHER, publisher_record
from leveret.broker.queue.queue import Queue, QueueHost
from leveret.broker.queue.target import (
    DROP,
    REFUSE,
    TAKE,
    Destinations,
    Target,
    surcharge_of,
)
from leveret.broker.quotas import Use
from leveret.broker.scheduler.accounts import VHOST_BYTES, Account
from leveret.broker.vhost.exchanges import Exchanges
from leveret.broker.vhost.ids import Ids
from leveret.broker.vhost.limits import VhostLimits
from leveret.broker.vhost.metadata import Metadata
from leveret.broker.vhost.policies import Policies
from leveret.broker.vhost.queues import Queues
from leveret.broker.vhost.replies import REPLY_PREFIX
from leveret.broker.vhost.staging_queues import StagingQueues
from leveret.errors import AccessRefused, NotFound
from leveret.limits import TABLE_BYTES_PER_COST
from leveret.message import Message
from leveret.wire.numbered import Numbered, read_numbered

#: The maximum number of copies that a bind to a recent-history exchange replays, counted from the
#: newest message, if the destination is an exchange with many queues.  A copy takes 0.25 µs, and
#: all are made at once, because they precede newer messages.  A message with long headers, whose
#: routing takes more comparisons than it has copies, counts as that many.
HISTORY_COPIES_MAX: Final = 16_384


__all__ = ["DUPLICATE", "KNOWN", "RECORDED", "REJECTED", "Vhost"]

#: Outcomes of a publish: the journal has a record of it; a queue was full and rejected it.
RECORDED: Final = 1
REJECTED: Final = 2

#: A durable queue dropped it as a duplicate of a message that may not be synced yet.
DUPLICATE: Final = 8

#: All its queues had seen its publishing id before, so none took it.
KNOWN: Final = 16

#: Internal: a queue must drop messages from its head once this message is journaled.
_BOUNDED: Final = 4

#: Internal: with this message a queue recorded the owner of the publisher's name.
_NAMED: Final = 32


@final
class Vhost(QueueHost):
    """One virtual host."""

    def __init__(self, core: Core, ids: Ids, name: str) -> None:
        super().__init__(name)
        self.core: Final = core
        self.ids: Final = ids
        #: The memory of the vhost's definitions.
        self.account: Final = Account(core.accounts)
        self.account.book(VHOST_BYTES)
        #: The counts of the vhost's contents, and their quotas.
        self.use: Final = Use(f"in vhost '{name}'", core.scheduler)
        self.revision: i64 = 1
        #: True once the vhost is deleted, so that nothing can be added.
        self.deleted = False
        #: True if the keys of topic exchanges must be plain words (`routing.keys`); existing
        #: bindings stay.
        self.strict_keys = False
        #: The journal group with the newest removal of a definition.
        self.removed_group: i64 = 0
        self.metadata: Final = Metadata(self)
        self.limits: Final = VhostLimits(self)
        self.policies: Final = Policies(self)
        self.exchanges: Final = Exchanges(self)
        self.queues: Final = Queues(self)
        #: The state of sinks and batches; the staging package sets it.
        self.staging = StagingQueues()
        #: The properties last read for a publisher's number, and the result.
        self._read_properties = b""
        self._read_numbered: Numbered | None = None

    def check_definition(self, size: i64) -> None:
        """Check that there is room for a new definition of `size` bytes of memory.

        Raises: PreconditionFailed (406); NotFound (404) while the vhost is being deleted.
        """
        if self.deleted:
            raise NotFound(f"no vhost '{self.name}'")
        self.account.check(self.name, size)

    # -- names ------------------------------------------------------------------------------------

    def queue_label(self, name: str) -> str:
        """Return the name of a queue in error messages."""
        return f"queue '{name}' in vhost '{self.name}'"

    def exchange_label(self, name: str) -> str:
        """Return the name of an exchange in error messages."""
        return f"exchange '{name}' in vhost '{self.name}'"

    # -- replies -----------------------------------------------------------------------------------

    def removed(self) -> None:
        """Have the reply to the current method wait for the record of its removal."""
        self.removed_group = self.core.journal.group
        self.core.syncs.recorded()

    def wait_for_removal(self) -> None:
        """Have the reply wait for a recent removal by another connection.

        Otherwise a crash could restore an object that the reply says does not exist.
        """
        self.core.syncs.wait_in_reply(self.removed_group)

    # -- deletion ----------------------------------------------------------------------------------

    def end(self) -> None:
        """Mark the vhost as deleted, so that nothing can be added."""
        self.deleted = True
        self.revision += 1

    def dissolve(self) -> Iterator[int]:
        """Release the contents of the deleted vhost."""
        yield from self.exchanges.release()
        yield from self.queues.release()
        self.staging.release()
        self.exchanges.end()
        self.account.end()

    # -- calls from queues and exchanges -----------------------------------------------------------

    def bound(self, binding: Binding) -> None:
        """Publish the messages that the source keeps for new bindings to a new binding.

        Consumers get them after the reply to the bind.
        """
        for message, targets in self._replayed(binding):
            # TTLs start anew in another queue.
            copy = message.copied(message.address, message.properties, self.core.now_ms)
            if targets and self.publish(copy, targets, None) & RECORDED:
                self.core.syncs.recorded()
            if self.core.syncs.must_wait(self.core.syncs.reply_group):
                for target in targets:
                    target.hold_until(self.core.syncs.reply_group)

    def _replayed(self, binding: Binding) -> list[tuple[Message, list[Target]]]:
        """Return the messages for a new binding and their targets, the oldest first.

        If they would be too many copies, or have too many headers to read, return only the newest.
        """
        replayed: list[tuple[Message, list[Target]]] = []
        copies: i64 = 0
        #: The cost counted by the routing itself, and the cost that the queues will count.
        counted: i64 = 0
        for message in reversed(binding.source.replayed()):
            before = self.core.scheduler.spent
            if binding.exchange is not None:
                targets = self.destinations(binding.exchange.name, message)
                if has_copies(message.properties):
                    copies += len(message.properties) // TABLE_BYTES_PER_COST
            else:
                assert binding.queue is not None
                targets = [binding.queue.target]
            # Routing may take longer than the copies.
            routed = self.core.scheduler.spent - before
            more = surcharge_of(targets, message)
            counted += routed + more
            copies += max(1 + len(targets), routed) + more
            if copies > HISTORY_COPIES_MAX and replayed:
                break
            replayed.append((message, targets))
        self.core.scheduler.spent += copies - counted
        replayed.reverse()
        return replayed

    def drop_unused(self, queue: Queue) -> None:
        """Delete a queue that has not been used for as long as its `x-expires`."""
        self.queues.drop(queue)

    def destinations(self, exchange: str, message: Message) -> list[Target]:
        """Return the targets of a message from the broker; none if the exchange does not exist."""
        found = self.exchanges.by_name.get(exchange)
        if found is None:
            return []
        key = message.address.routing_key.decode("utf-8", "surrogateescape")
        copies = blind_copies(message.address)
        if has_copies(message.properties):
            copies = carbon_copies(message) + copies
        return self.route(found, key, message.properties, copies).targets

    # -- messages ---------------------------------------------------------------------------------

    def route(
        self,
        exchange: Exchange,
        routing_key: str,
        properties: bytes,
        more_keys: list[str] | None = None,
    ) -> Routing:
        """Return the destinations of a message, which may have more keys (behaviour 23: CC, BCC).

        `Routing.dynamic` says whether the result is valid for this message alone.
        """
        routing = Routing(routing_key, properties)
        if exchange.name:
            routing.more_keys = more_keys
            routing.run(exchange, self.exchanges.by_name)
        else:
            self._route_to_queue(routing, routing_key)
            for key in more_keys or ():
                routing.look(1)
                self._route_to_queue(routing, key)
        self.core.scheduler.spent += routing.cost()
        return routing

    def has_exchange(self, name: str) -> bool:
        """Return whether an exchange exists."""
        return name in self.exchanges.by_name

    def route_letter(
        self, exchange: str, routing_key: str, more_keys: list[str], properties: bytes
    ) -> Destinations:
        """Return the destinations of a dead letter from an existing exchange."""
        return self.route(self.exchanges.by_name[exchange], routing_key, properties, more_keys)

    def _route_to_queue(self, routing: Routing, name: str) -> None:
        """Route by the default exchange: to the queue or the reply address with that name."""
        queue = self.queues.by_name.get(name)
        if queue is None and name.startswith(REPLY_PREFIX):
            # An address ends with its channel, without a change of the revision.
            routing.dynamic = True
            queue = self.queues.replies.queues.get(name)
        if queue is not None:
            routing.take_target(queue.target)

    def numbered(self, properties: bytes) -> Numbered | None:
        """Return the result of `read_numbered`; while a message is handled, it is read only once.

        Raises: PreconditionFailed (406).
        """
        if properties is not self._read_properties:
            self._read_numbered = read_numbered(properties)
            self._read_properties = properties
        return self._read_numbered

    def check_publisher(self, properties: bytes, targets: list[Target], by: Owner | None) -> None:
        """Check that `by` may publish under the publisher name of a message, if it has one.

        Raises: AccessRefused (403) if the name belongs to another user in one of its queues.
        """
        numbered = self.numbered(properties)
        if numbered is None:
            return
        # Each target is checked here, and again when it takes the number.
        self.core.scheduler.spent += len(targets) // 2
        for target in targets:
            publishers = target.publishers
            if publishers is not None and not publishers.is_free(numbered.publisher, by):
                # A publisher to an exchange need not learn the queue's name.
                name = numbered.publisher.decode("utf-8", "replace")
                raise AccessRefused(
                    foreign(f"publisher name '{name}' in vhost '{self.name}'", GIVE_PUBLISHER)
                )

    def publish(self, message: Message, targets: list[Target], by: Owner | None) -> i64:
        """Put `message` into `targets`; return the outcome as a combination of the flags above.

        For a message with publisher deduplication, `by` is the user who owns its publisher name.  A
        queue in which the name belongs to another user refuses the message (`check_publisher`).
        """
        if message.numbered:
            outcome = self._spread_numbered(message, targets, by)
        else:
            outcome = self._spread(message, targets)
        if outcome & RECORDED:
            self.core.journal.publish(message)
        if outcome & _NAMED:
            self._record_publisher(message, targets, by)
        if outcome & _BOUNDED:
            _make_room(targets)
        return outcome

    def _record_publisher(self, message: Message, targets: list[Target], by: Owner | None) -> None:
        """Journal the owner of the publisher's name, for queues that learned it from `message`."""
        numbered = self.numbered(message.properties)
        if numbered is None:
            return
        name = numbered.publisher
        for target in targets:
            if target.publishers is None or not target.recorded:
                continue
            known = target.publishers.known(name)
            if known is not None and known.owner is by and known.number == numbered.number:
                record = publisher_record(target.queue_id, name, by)
                self.core.journal.define("publisher", record)

    def move(
        self,
        queue: Queue,
        sequence: i64,
        message: Message,
        letter: Message,
        targets: list[Target],
    ) -> i64:
        """Move a message from `queue` into `targets` as `letter`, its changed copy, by one record.

        `message` is the message with `sequence` in `queue`.  Return the outcome, as `publish` does.
        """
        journal = self.core.journal
        journaled = queue.target.records(message)
        held = journaled and not queue.deleted
        outcome = self._spread(letter, targets)
        if outcome & RECORDED:
            if held:
                journal.move(queue.queue_id, sequence, letter)
            else:
                journal.publish(letter)
        queue.moved(sequence, message, held and outcome & RECORDED != 0)
        if outcome & _BOUNDED:
            _make_room(targets)
        return outcome

    def put(self, letter: Message, targets: list[Target]) -> None:
        """Put `letter`, which has no source queue and no publisher, into `targets`."""
        outcome = self._spread(letter, targets)
        if outcome & RECORDED:
            self.core.journal.publish(letter)
        if outcome & _BOUNDED:
            _make_room(targets)

    def _spread(self, message: Message, targets: list[Target]) -> i64:
        """Put `message` into `targets`; list the ones that record their copy in the journal."""
        journal = self.core.journal
        weight: i64 = 1 if message.persistent else 0
        outcome: i64 = 0
        for target in targets:
            if target.checks_admission:
                verdict = target.admit(message)
                if verdict != TAKE:
                    if verdict == REFUSE:
                        outcome |= REJECTED
                    elif target.recorded:
                        outcome |= DUPLICATE
                    continue
            sequence = target.publish(message)
            if target.bounded:
                outcome |= _BOUNDED
            if weight >= target.records_from:
                journal.target(target.queue_id, sequence)
                outcome |= RECORDED
            else:
                target.transient += 1
        return outcome

    def _spread_numbered(self, message: Message, targets: list[Target], by: Owner | None) -> i64:
        """Put a message into those of `targets` that have not taken its publisher's number."""
        numbered = self.numbered(message.properties)
        if numbered is None:
            return self._spread(message, targets)
        outcome: i64 = 0
        known = len(targets) > 0
        for target in targets:
            verdict = target.admit_numbered(numbered, by)
            taken: i64 = 0
            if verdict != DROP:
                known = False
            if verdict == TAKE:
                taken = self._spread(message, [target])
                publishers = target.publishers
                if (
                    taken & REJECTED == 0
                    and publishers is not None
                    and publishers.note(numbered, by)
                ):
                    taken |= _NAMED
            elif verdict == REFUSE:
                taken = REJECTED
            elif target.recorded:
                taken = DUPLICATE
            outcome |= taken
        return outcome | KNOWN if known else outcome


def _make_room(targets: list[Target]) -> None:
    for target in targets:
        if target.bounded and not target.deleted:
            target.make_room()
