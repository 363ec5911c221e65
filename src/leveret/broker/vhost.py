"""A virtual host: its exchanges, queues and bindings, and the messages that go through them.

What it holds is in `vhost_state`, the operations on exchanges and queues in `vhost_exchanges` and
`vhost_queues`; here is what happens to messages.
"""

from __future__ import annotations

from leveret.broker.exchange import Exchange, Routing
from leveret.broker.queue import Queue
from leveret.broker.vhost_queues import VhostQueues
from leveret.broker.vhost_state import Ids, clean_name
from leveret.message import Message

__all__ = ["Ids", "Vhost", "clean_name"]


class Vhost(VhostQueues):
    """One virtual host."""

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
