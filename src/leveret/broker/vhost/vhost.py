"""A virtual host: its exchanges, queues and bindings, and the messages that go through them.

What it holds is in `vhost.state`, the operations on exchanges and queues in `vhost.exchanges` and
`vhost.queues`; here is what happens to messages.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.classic.chunked import ChunkedQueue
from leveret.broker.classic.delayed import DelayedMessages
from leveret.broker.core.ownership import Owner, foreign
from leveret.broker.core.turn import Turn
from leveret.broker.queue.publishers import GIVE_PUBLISHER, publisher_record
from leveret.broker.queue.queue import DROP, REFUSE, TAKE, Queue
from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Exchange, Routing
from leveret.broker.values.arguments import Arguments
from leveret.broker.values.copies import blind_copies, carbon_copies
from leveret.broker.vhost.queues import VhostQueues
from leveret.broker.vhost.replies import REPLY_PREFIX
from leveret.broker.vhost.staging_queues import StagingQueues
from leveret.broker.vhost.state import Ids
from leveret.errors import AccessRefused
from leveret.message import Message
from leveret.names import Name
from leveret.wire.numbered import read_numbered
from leveret.wire.properties import property_headers

__all__ = ["DUPLICATE", "KNOWN", "RECORDED", "REJECTED", "Ids", "Vhost"]

#: What came of a publish: a record of the journal holds it; a queue had no room and refused it.
RECORDED: Final = 1
REJECTED: Final = 2

#: A durable queue dropped it because it has its like, which may not be synced yet.
DUPLICATE: Final = 8

#: Every queue that it was routed to had its publisher's number already: it is in none once more.
KNOWN: Final = 16

#: Inside: a queue must drop from its head what is too much, once the journal knows the message.
_BOUNDED: Final = 4

#: Inside: a queue knows a publisher's name as the user's from this message on.
_NAMED: Final = 32


@mypyc_attr(allow_interpreted_subclasses=True)
class StagingRoom:
    """Who makes the staging queues of each new vhost."""

    def open(self, vhost: Vhost) -> StagingQueues:
        """Return what stands behind the staging queues of `vhost`."""
        return StagingQueues()


class Vhost(VhostQueues):
    """One virtual host."""

    def __init__(self, turn: Turn, ids: Ids, name: str, staging: StagingRoom) -> None:
        super().__init__(turn, ids, name)
        self.staging = staging.open(self)

    def bound(self, binding: Binding) -> None:
        """Hand a new binding what its source keeps for it, and its consumers after the reply."""
        for message in binding.source.replayed():
            # Times begin anew in another queue.
            copy = Message(
                message.address,
                message.properties,
                message.body,
                self.turn.now_ms,
                message.persistent,
                message.died,
            )
            if binding.exchange is not None:
                queues = self.destinations(binding.exchange, message)
            else:
                assert binding.queue is not None
                queues = [binding.queue]
            if queues and self.publish(copy, queues, None) & RECORDED:
                self.turn.recorded()
            if self.turn.must_wait(self.turn.reply_group):
                for queue in queues:
                    queue.hold_until(self.turn.reply_group)

    # -- delayed messages -------------------------------------------------------------------------

    def equip_delays(self, exchange: Exchange) -> None:
        """Give an exchange that delays its store, and journal it."""
        if exchange.delays and exchange.delayed is None:
            store = self.restore_delayed(exchange, self.ids.next_queue_id())
            if store.recorded:
                self.turn.journal.define("queue", store.definition(self.name))

    def restore_delayed(self, exchange: Exchange, queue_id: i64) -> DelayedMessages:
        """Return the new store of an exchange; nothing is journaled."""
        store = DelayedMessages(self.turn, queue_id, exchange)
        store.vhost = self
        exchange.delayed = store
        return store

    def cancel_delayed(self, exchange_name: Name, sequence: i64) -> bool:
        """Drop a delayed message by its id; tell whether it was there.

        Raises: NotFound (404) for an exchange that is not there.
        """
        store = self.exchange(exchange_name).delayed
        return store is not None and store.cancel(sequence)

    def purge_delayed(self, exchange_name: Name) -> i64:
        """Drop all delayed messages of an exchange; return their number.

        Raises: NotFound (404).
        """
        store = self.exchange(exchange_name).delayed
        return 0 if store is None else store.purge()

    def destinations(self, exchange: Exchange, message: Message) -> list[Queue]:
        """Return where a message of the broker's own goes from `exchange`."""
        key = message.address.routing_key.decode("utf-8", "surrogateescape")
        headers = property_headers(message.properties) or {}
        copies = carbon_copies(headers) + blind_copies(message.address)
        return self.route_copies(exchange, key, copies, message.properties).queues

    # -- messages ---------------------------------------------------------------------------------

    def route(self, exchange: Exchange, routing_key: str, properties: bytes) -> Routing:
        """Return where a message goes; see `Routing` for how long the answer holds."""
        routing = Routing(routing_key, properties)
        if exchange.name:
            routing.run(exchange, self.exchanges)
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
            routing.run(exchange, self.exchanges)
        else:
            self._route_to_queue(routing, routing_key)
            for key in more_keys:
                self._route_to_queue(routing, key)
        return routing

    def _route_to_queue(self, routing: Routing, name: str) -> None:
        """Route by the default exchange: to the queue, or the waiting channel, of that name."""
        queue = self.queues.get(name)
        if queue is None and name.startswith(REPLY_PREFIX):
            # An address ends with its channel, and nothing that is remembered hears of that.
            routing.dynamic = True
            queue = self.replies.queues.get(name)
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
        """Journal whose a publisher's name is, in the queues that know it from this message on."""
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
        queue: ChunkedQueue,
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
        queue.buried(sequence, message, held and outcome & RECORDED != 0)
        if outcome & _BOUNDED:
            _make_room(queues)
        return outcome

    def _spread(self, message: Message, queues: list[Queue]) -> i64:
        """Put `message` into `queues` and name those to the journal whose copy it is to hold."""
        journal = self.turn.journal
        persistent = message.persistent
        outcome: i64 = 0
        for queue in queues:
            if queue.screens:
                verdict = queue.screen(message)
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
            verdict = queue.screen_numbered(numbered, by)
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
        queue = super().make_queue(queue_id, name, durable, exclusive, auto_delete, arguments)
        queue.vhost = self
        return queue


def _make_room(queues: list[Queue]) -> None:
    for queue in queues:
        if queue.bounded and not queue.deleted:
            queue.make_room()
