"""The headers exchange: a binding's arguments are matched against the message's headers.

Source: AMQP 0-9-1 section 3.1.3.4 and behaviour 40 (headers exchange).  `routing.headers` does the
matching.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Declared, Exchange, Routing
from leveret.broker.scheduler.accounts import table_bytes
from leveret.limits import ROUTING_LOOKS_MAX
from leveret.routing.headers import HeadersIndex, HeadersMatcher

#: The memory of a matcher, and of each argument in it.
_MATCHER_BYTES: Final = 200
_ENTRY_BYTES: Final = 70


#: The memory of an entry of the index.
_PLACE_BYTES: Final = 500


class HeadersExchange(Exchange):
    """Routes each message by matching its headers against the arguments of the bindings."""

    index: HeadersIndex
    _matchers_bytes: i64

    def __init__(self, declared: Declared) -> None:
        """Create the exchange without bindings; routing keys are ignored."""
        super().__init__(declared)
        self.index = HeadersIndex()
        self._matchers_bytes = 0
        self.looks_at_keys = False

    def add(self, binding: Binding) -> None:
        """Add `binding` with its matcher.

        Raises: PreconditionFailed (406) for an invalid x-match.
        """
        arguments = binding.arguments
        matcher = HeadersMatcher(arguments)
        binding.index_bytes = _MATCHER_BYTES + len(arguments) * _ENTRY_BYTES
        if binding.is_packed():
            # Only the matcher contains the decoded values.
            binding.index_bytes += table_bytes(arguments)
        self._matchers_bytes += binding.index_bytes
        self.index.insert(binding, matcher)

    def remove(self, binding: Binding) -> None:
        """Remove `binding` with its matcher."""
        self.index.remove(binding)
        self._matchers_bytes -= binding.index_bytes

    def index_bytes(self) -> i64:
        """Return the memory of the index."""
        return self._matchers_bytes + self.index.places * _PLACE_BYTES

    def route(self, routing: Routing) -> None:
        """Match the bindings with arguments that match the headers."""
        index = self.index
        before = index.looks
        found = index.find(routing.headers(), ROUTING_LOOKS_MAX - routing.looks)
        for target in found:
            if isinstance(target, Binding):
                routing.take(target)
                if routing.over:
                    break
        routing.look(index.looks - before)
