"""The direct exchange: a binding matches if its key is the routing key (AMQP 0-9-1 3.1.3.1)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Declared, Exchange, Routing

#: The memory of a key with the table of its bindings.
_KEY_BYTES: Final = 320


class DirectExchange(Exchange):
    """Indexes bindings by key."""

    by_key: dict[str, dict[Binding, None]]

    def __init__(self, declared: Declared) -> None:
        super().__init__(declared)
        self.by_key = {}

    def key_of(self, binding: Binding) -> str:
        """Return the key of a binding in the index."""
        return binding.binding_key

    def add(self, binding: Binding) -> None:
        """Index `binding` by its key."""
        self.by_key.setdefault(self.key_of(binding), {})[binding] = None

    def remove(self, binding: Binding) -> None:
        """Remove `binding` from the index."""
        key = self.key_of(binding)
        bindings = self.by_key[key]
        del bindings[binding]
        if not bindings:
            del self.by_key[key]

    def index_bytes(self) -> i64:
        """Return the memory of the index."""
        return len(self.by_key) * _KEY_BYTES

    def route(self, routing: Routing) -> None:
        """Match the bindings with the routing key as their key."""
        routing.take_all(self.by_key.get(routing.routing_key, ()))
