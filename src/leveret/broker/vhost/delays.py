"""The delayed messages of a virtual host: which of its exchanges have a store for them."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.classic.delayed import DelayedMessages
from leveret.broker.core.ownership import Owner
from leveret.broker.queue.quota import count_queue, give_queue
from leveret.broker.topology.exchange import Exchange
from leveret.broker.vhost.state import VhostState


@final
class Delays:
    """The stores of the exchanges of one vhost that delay messages."""

    def __init__(self, vhost: VhostState) -> None:
        self._vhost: Final = vhost

    def equip(self, exchange: Exchange, by: Owner | None = None) -> None:
        """Give an exchange that delays its store, and journal it.

        What is in it counts for `by`, and for the vhost alone without him.
        """
        if exchange.delays and exchange.delayed is None:
            vhost = self._vhost
            store = self.restore(exchange, vhost.ids.next_queue_id())
            give_queue(store, by)
            if store.recorded:
                vhost.turn.journal.define("queue", store.definition(vhost.name))

    def restore(self, exchange: Exchange, queue_id: i64) -> DelayedMessages:
        """Return the new store of an exchange; nothing is journaled."""
        store = DelayedMessages(self._vhost.turn, queue_id, exchange.name, exchange.durable)
        store.vhost = self._vhost
        count_queue(store, self._vhost.use)
        exchange.delayed = store
        return store
