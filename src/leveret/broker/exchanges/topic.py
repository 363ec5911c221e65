"""The topic exchange: binding keys are patterns, with `*` for one word and `#` for any number.

Source: AMQP 0-9-1 section 3.1.3.3 and behaviour 39 (topic exchange).  `routing.topic` does the
matching.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Declared, Exchange, Routing
from leveret.limits import ROUTING_LOOKS_MAX
from leveret.routing.topic import TopicTrie

#: The memory of a node of the trie with its tables and its word.
_NODE_BYTES: Final = 400

#: A visit to a trie node costs as much as this number of bindings, because nodes are found through
#: tables and are spread over the memory.
_LOOKS_PER_STATE: Final = 2

#: Splitting this many bytes of a routing key into words costs as much as a binding.
_KEY_BYTES_PER_LOOK: Final = 8


class TopicExchange(Exchange):
    """Indexes bindings in a trie of words."""

    trie: TopicTrie

    def __init__(self, declared: Declared) -> None:
        super().__init__(declared)
        self.trie = TopicTrie()
        self.has_patterns = True

    def add(self, binding: Binding) -> None:
        """Index `binding` by the words of its key."""
        self.trie.insert(binding.binding_key, binding)

    def remove(self, binding: Binding) -> None:
        """Remove `binding` from the index."""
        self.trie.remove(binding.binding_key, binding)

    def index_bytes(self) -> i64:
        """Return the memory of the index."""
        return self.trie.nodes * _NODE_BYTES

    def route(self, routing: Routing) -> None:
        """Match the bindings with a pattern that matches the routing key."""
        trie = self.trie
        before = trie.states_visited
        routing.look(len(routing.routing_key) // _KEY_BYTES_PER_LOOK)
        room = (ROUTING_LOOKS_MAX - routing.looks) // _LOOKS_PER_STATE
        found = trie.find_within(routing.routing_key, room)
        routing.look((trie.states_visited - before) * _LOOKS_PER_STATE)
        if found is None:
            return
        for target in found:
            if isinstance(target, Binding):
                routing.take(target)
                if routing.over:
                    break
