"""The fanout exchange: every binding matches (AMQP 0-9-1 section 3.1.3.2)."""

from __future__ import annotations

from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Declared, Exchange, Routing


class FanoutExchange(Exchange):
    """Matches all bindings, without an index."""

    def __init__(self, declared: Declared) -> None:
        super().__init__(declared)
        self.looks_at_keys = False

    def add(self, binding: Binding) -> None:
        """Do nothing, because the type has no index."""

    def remove(self, binding: Binding) -> None:
        """Do nothing, because the type has no index."""

    def route(self, routing: Routing) -> None:
        """Match all bindings."""
        routing.take_all(self.bindings.values())
