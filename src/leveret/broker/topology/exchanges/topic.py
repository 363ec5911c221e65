"""The topic exchange: binding keys of words, `*` for one and `#` for any number of them.

Source: AMQP 0-9-1 section 3.1.3.3 and behaviour 39; the matching is `routing.topic`.
"""

from __future__ import annotations

from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Exchange, Routing
from leveret.routing.topic import TopicTrie


class TopicExchange(Exchange):
    """Bindings in a trie of words."""

    trie: TopicTrie

    def start_index(self) -> None:
        """Start without bindings."""
        self.trie = TopicTrie()
        self.has_patterns = True

    def add(self, binding: Binding) -> None:
        """Index `binding` by the words of its key."""
        self.trie.insert(binding.binding_key, binding)

    def remove(self, binding: Binding) -> None:
        """Forget `binding`."""
        self.trie.remove(binding.binding_key, binding)

    def route(self, routing: Routing) -> None:
        """Match the bindings whose pattern fits the routing key."""
        for target in self.trie.match(routing.routing_key):
            if isinstance(target, Binding):
                routing.take(target)
