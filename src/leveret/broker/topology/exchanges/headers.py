"""The headers exchange: a binding's arguments are matched against the message's headers.

Source: AMQP 0-9-1 section 3.1.3.4 and behaviour 40; the matching is `routing.headers`.
"""

from __future__ import annotations

from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Exchange, Routing
from leveret.routing.headers import HeadersMatcher


class HeadersExchange(Exchange):
    """Bindings with a matcher each; every message is matched on its own."""

    matchers: dict[Binding, HeadersMatcher]

    def start_index(self) -> None:
        """Start without bindings; keys mean nothing."""
        self.matchers = {}
        self.looks_at_keys = False

    def add(self, binding: Binding) -> None:
        """Prepare the matcher of `binding`.

        Raises: PreconditionFailed (406) for an x-match that is none.
        """
        self.matchers[binding] = HeadersMatcher(binding.arguments)

    def remove(self, binding: Binding) -> None:
        """Forget `binding`."""
        del self.matchers[binding]

    def route(self, routing: Routing) -> None:
        """Match the bindings whose arguments fit the headers."""
        headers = routing.headers()
        for binding, matcher in self.matchers.items():
            if matcher.matches(headers):
                routing.take(binding)
