"""A virtual host: it puts its parts together, and routes and publishes messages.

Its parts are `exchanges` (with their bindings), `queues`, `policies`, `metadata` and `delays`, each
a class of its own in the module of that name.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.ownership import Owner, foreign
from leveret.broker.core.turn import Turn
from leveret.broker.queue.host import Destinations
from leveret.broker.queue.publishers import GIVE_PUBLISHER, publisher_record
from leveret.broker.queue.queue import DROP, REFUSE, TAKE, Queue
from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Exchange, Routing
from leveret.broker.values.copies import blind_copies, carbon_copies
from leveret.broker.vhost.delays import Delays
from leveret.broker.vhost.exchanges import Exchanges
from leveret.broker.vhost.ids import Ids
from leveret.broker.vhost.metadata import Metadata
from leveret.broker.vhost.policies import Policies
from leveret.broker.vhost.queues import Queues
from leveret.broker.vhost.replies import REPLY_PREFIX
from leveret.broker.vhost.staging_queues import StagingQueues
from leveret.broker.vhost.state import VhostState
from leveret.errors import AccessRefused
from leveret.message import Message
from leveret.wire.numbered import read_numbered
from leveret.wire.properties import property_headers

__all__ = ["DUPLICATE", "KNOWN", "RECORDED", "REJECTED", "StagingRoom", "Vhost"]

#: Outcomes of a publish: the journal has a record of it; a queue was full and rejected it.
RECORDED: Final = 1
REJECTED: Final = 2

#: A durable queue dropped it as a duplicate of a message that may not be synced yet.
DUPLICATE: Final = 8

#: Every queue that it was routed to had seen its publishing id before, so none took it.
KNOWN: Final = 16

#: Internal: a queue has to drop messages from its head once the journal has this one.
_BOUNDED: Final = 4

#: Internal: with this message a queue learned who owns the publisher's name.
_NAMED: Final = 32


@mypyc_attr(allow_interpreted_subclasses=True)
class StagingRoom:
    """The maker of the staging queues of each new vhost."""

    def open(self, vhost: Vhost) -> StagingQueues:
        """Return the object behind the staging queues of `vhost`."""
        return StagingQueues()


@final
class Vhost(VhostState):
    """One virtual host."""

    def __init__(self, turn: Turn, ids: Ids, name: str, staging: StagingRoom) -> None:
        super().__init__(turn, ids, name)
        exchanges: dict[str, Exchange] = {}
        queues: dict[str, Queue] = {}
        self.staging: Final = staging.open(self)
        self.metadata: Final = Metadata(self)
        self.delays: Final = Delays(self)
        self.policies: Final = Policies(self, self.delays, queues, exchanges)
        self.exchanges: Final = Exchanges(self, self.policies, self.delays, exchanges, queues)
        self.queues: Final = Queues(
            self, self.metadata, self.policies, self.exchanges, self.staging, queues
        )

    def recorded_queues(self) -> list[Queue]:
        """Return the queues that the journal knows by id: durable ones and delayed messages."""
        found = [queue for queue in self.queues.by_name.values() if queue.recorded]
        for exchange in self.exchanges.by_name.values():
            store = exchange.delayed
            if store is not None and store.recorded:
                found.append(store)
        return found

    def dissolve(self) -> None:
        """Release everything in the vhost, which is deleted; the caller journals that."""
        self.turn.changes += 1
        self.revision += 1
        self.queues.clear()
        self.exchanges.clear()
        self.staging.drop()

    def bound(self, binding: Binding) -> None:
        """Publish to a new binding what its source keeps for new bindings.

        Consumers get it after the reply to the bind.
        """
        for message in binding.source.replayed():
            # Times begin anew in another queue.
            copy = message.copied(message.address, message.properties, self.turn.now_ms)
            if binding.exchange is not None:
                queues = self.destinations(binding.exchange.name, message)
            else:
                assert binding.queue is not None
                queues = [binding.queue]
            if queues and self.publish(copy, queues, None) & RECORDED:
                self.turn.recorded()
            if self.turn.must_wait(self.turn.reply_group):
                for queue in queues:
                    queue.hold_until(self.turn.reply_group)

    def drop_unused(self, queue: Queue) -> i64:
        """Delete a queue that nobody used for as long as it asks; return its steps of work."""
        steps: i64 = 1 + len(self.exchanges.bindings_to(queue)) + queue.ready_count()
        self.queues.drop(queue)
        return steps

    def destinations(self, exchange: str, message: Message) -> list[Queue]:
        """Return where a message of the broker's own goes; nowhere without the exchange."""
        found = self.exchanges.by_name.get(exchange)
        if found is None:
            return []
        key = message.address.routing_key.decode("utf-8", "surrogateescape")
        headers = property_headers(message.properties) or {}
        copies = carbon_copies(headers) + blind_copies(message.address)
        return self.route_copies(found, key, copies, message.properties).queues

    # -- messages ---------------------------------------------------------------------------------

    def route(self, exchange: Exchange, routing_key: str, properties: bytes) -> Routing:
        """Return where a message goes; see `Routing` for how long the answer holds."""
        routing = Routing(routing_key, properties)
        if exchange.name:
            routing.run(exchange, self.exchanges.by_name)
        else:
            self._route_to_queue(routing, routing_key)
        return routing

    def route_copies(
        self, exchange: Exchange, routing_key: str, more_keys: list[str], properties: bytes
    ) -> Routing:
        """Return where a message with more keys than one goes (behaviour 23)."""
        routing = Routing(routing_key, properties)
        if exchange.name:
            routing.more_keys = more_keys
            routing.run(exchange, self.exchanges.by_name)
        else:
            self._route_to_queue(routing, routing_key)
            for key in more_keys:
                self._route_to_queue(routing, key)
        return routing

    def has_exchange(self, name: str) -> bool:
        """Tell whether there is an exchange of that name."""
        return name in self.exchanges.by_name

    def route_letter(
        self, exchange: str, routing_key: str, more_keys: list[str], properties: bytes
    ) -> Destinations:
        """Return where a dead letter goes from an exchange that is there."""
        source = self.exchanges.by_name[exchange]
        return self.route_copies(source, routing_key, more_keys, properties)

    def _route_to_queue(self, routing: Routing, name: str) -> None:
        """Route by the default exchange: to the queue, or the reply address, of that name."""
        queue = self.queues.by_name.get(name)
        if queue is None and name.startswith(REPLY_PREFIX):
            # An address ends with its channel, and that does not change the revision.
            routing.dynamic = True
            queue = self.queues.replies.queues.get(name)
        if queue is not None:
            routing.take_queue(queue)

    def check_publisher(self, properties: bytes, queues: list[Queue], by: Owner | None) -> None:
        """Check that `by` may publish under the name of a message that is numbered.

        Raises: AccessRefused (403) where a queue that it goes to has the name from another user.
        """
        numbered = read_numbered(properties)
        if numbered is None:
            return
        for queue in queues:
            publishers = queue.publishers
            if publishers is not None and not publishers.is_free(numbered.publisher, by):
                # Which queue that is a publisher to an exchange need not know.
                name = numbered.publisher.decode("utf-8", "replace")
                raise AccessRefused(
                    foreign(f"publisher name '{name}' in vhost '{self.name}'", GIVE_PUBLISHER)
                )

    def publish(self, message: Message, queues: list[Queue], by: Owner | None) -> i64:
        """Put `message` into `queues`; return the flags above as they are so.

        `by` is the user whose name its publisher's is, where the message is numbered.  A queue in
        which that is another's refuses it: see `check_publisher`.
        """
        if message.numbered:
            outcome = self._spread_numbered(message, queues, by)
        else:
            outcome = self._spread(message, queues)
        if outcome & RECORDED:
            self.turn.journal.publish(message)
        if outcome & _NAMED:
            self._record_publisher(message, queues, by)
        if outcome & _BOUNDED:
            _make_room(queues)
        return outcome

    def _record_publisher(self, message: Message, queues: list[Queue], by: Owner | None) -> None:
        """Journal who owns the publisher's name, for the queues that learned it from `message`."""
        numbered = read_numbered(message.properties)
        if numbered is None:
            return
        name = numbered.publisher
        for queue in queues:
            if queue.publishers is None or not queue.recorded:
                continue
            known = queue.publishers.known(name)
            if known is not None and known.owner is by and known.number == numbered.number:
                record = publisher_record(queue.queue_id, name, by)
                self.turn.journal.define("publisher", record)

    def move(
        self,
        queue: Queue,
        sequence: i64,
        message: Message,
        letter: Message,
        queues: list[Queue],
    ) -> i64:
        """Take `sequence` out of `queue` and put `letter` into `queues`, by one record.

        `message` is what `queue` held under `sequence`, `letter` what it became.  Returns what
        `publish` returns.
        """
        journal = self.turn.journal
        journaled = queue.recorded and (message.persistent or queue.keeps_all)
        held = journaled and not queue.deleted and sequence >= 0
        outcome = self._spread(letter, queues)
        if outcome & RECORDED:
            if held:
                journal.move(queue.queue_id, sequence, letter)
            else:
                journal.publish(letter)
        queue.moved(sequence, message, held and outcome & RECORDED != 0)
        if outcome & _BOUNDED:
            _make_room(queues)
        return outcome

    def _spread(self, message: Message, queues: list[Queue]) -> i64:
        """Put `message` into `queues`; name to the journal those whose copy it must hold."""
        journal = self.turn.journal
        persistent = message.persistent
        outcome: i64 = 0
        for queue in queues:
            if queue.checks_admission:
                verdict = queue.admit(message)
                if verdict != TAKE:
                    if verdict == REFUSE:
                        outcome |= REJECTED
                    elif queue.recorded:
                        outcome |= DUPLICATE
                    continue
            sequence = queue.publish(message)
            if queue.bounded:
                outcome |= _BOUNDED
            if queue.recorded and (persistent or queue.keeps_all):
                journal.target(queue.queue_id, sequence)
                outcome |= RECORDED
        return outcome

    def _spread_numbered(self, message: Message, queues: list[Queue], by: Owner | None) -> i64:
        """Put a message into those of `queues` that have not taken its publisher's number."""
        numbered = read_numbered(message.properties)
        if numbered is None:
            return self._spread(message, queues)
        outcome: i64 = 0
        known = len(queues) > 0
        for queue in queues:
            verdict = queue.admit_numbered(numbered, by)
            taken: i64 = 0
            if verdict != DROP:
                known = False
            if verdict == TAKE:
                taken = self._spread(message, [queue])
                publishers = queue.publishers
                if (
                    taken & REJECTED == 0
                    and publishers is not None
                    and publishers.note(numbered, by)
                ):
                    taken |= _NAMED
            elif verdict == REFUSE:
                taken = REJECTED
            elif queue.recorded:
                taken = DUPLICATE
            outcome |= taken
        return outcome | KNOWN if known else outcome


def _make_room(queues: list[Queue]) -> None:
    for queue in queues:
        if queue.bounded and not queue.deleted:
            queue.make_room()
