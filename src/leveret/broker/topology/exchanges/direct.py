"""The direct exchange: the routing key is the binding key (AMQP 0-9-1 section 3.1.3.1)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Declared, Exchange, Routing

#: A key with the table of its bindings.
_KEY_BYTES: Final = 320


class DirectExchange(Exchange):
    """Bindings by their key."""

    by_key: dict[str, dict[Binding, None]]

    def __init__(self, declared: Declared) -> None:
        super().__init__(declared)
        self.by_key = {}

    def add(self, binding: Binding) -> None:
        """Index `binding` by its key."""
        self.by_key.setdefault(binding.binding_key, {})[binding] = None

    def remove(self, binding: Binding) -> None:
        """Forget `binding`."""
        bindings = self.by_key[binding.binding_key]
        del bindings[binding]
        if not bindings:
            del self.by_key[binding.binding_key]

    def index_bytes(self) -> i64:
        """Return the memory of the index."""
        return len(self.by_key) * _KEY_BYTES

    def route(self, routing: Routing) -> None:
        """Match the bindings whose key is the routing key."""
        for binding in self.by_key.get(routing.routing_key, ()):
            routing.take(binding)
            if routing.over:
                break
