"""Routes a message in a topology.

Routing follows the same rules as in the broker (`broker.exchanges.exchange`).  Each exchange is
visited once, and each queue gets the message once, so cycles end.  An exchange without matching
bindings passes the message to its alternate exchange.  A test compares the results with a broker's.

Headers are text, as in Spark's tables, so they are compared with a binding's arguments as text: the
number 1 equals the text "1".

The choice of a random exchange is unpredictable, so all possible choices are followed, each with
its share.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from leveret.errors import AmqpError, PreconditionFailed
from leveret.pipelines.route.matchers import Matcher, MessageKey, make_matcher
from leveret.pipelines.route.topology import RecordedTopology, TopologyError
from leveret.routing.keys import check_strict_routing_key

#: The reasons why a message is unroutable; the reason is `""` if it is routable.
NO_EXCHANGE: Final = "no such exchange"
INTERNAL: Final = "internal exchange"
NOT_STRICT: Final = "key is not strict"
NO_BINDING: Final = "no binding matches"

#: The header with further routing keys.  The broker removes BCC from messages.
COPIES: Final = "CC"


@dataclass(slots=True)
class RouteResult:
    """The destinations of a message: queues with their shares, and the bindings that matched.

    Queues and bindings are given by their numbers in the topology.  A share is 1 except behind a
    random exchange.
    """

    queues: dict[int, float] = field(default_factory=dict)
    bindings: dict[int, float] = field(default_factory=dict)
    reason: str = ""


class Router:
    """Routes messages in a topology, whose bindings it indexes.

    Raises: TopologyError for an unsupported exchange or binding.
    """

    def __init__(self, topology: RecordedTopology) -> None:
        self._topology = topology
        self._queues = {name: number for number, name in enumerate(topology.queues)}
        self._matchers: dict[str, Matcher] = {
            name: make_matcher(exchange) for name, exchange in topology.exchanges.items()
        }
        #: The destination of each binding: a queue's number, or an exchange's name.
        self._ends: list[int | str] = []
        for number, binding in enumerate(topology.bindings):
            try:
                self._matchers[binding.source].add(number, binding)
            except AmqpError as error:
                raise TopologyError(f"binding {binding}: {error.text}") from None
            end = self._queues[binding.destination] if binding.to_queue else binding.destination
            self._ends.append(end)

    def header_names(self) -> set[str]:
        """Return the names of the headers that routing uses, including CC."""
        return {COPIES}.union(*(matcher.header_names() for matcher in self._matchers.values()))

    def property_names(self) -> set[str]:
        """Return the names of the properties that routing uses."""
        return set[str]().union(*(matcher.property_names() for matcher in self._matchers.values()))

    def route(self, message: MessageKey) -> RouteResult:
        """Return the destinations of a message."""
        keys = [message.routing_key, *copies(message.headers.get(COPIES))]
        outcome = RouteResult()
        if not message.exchange:
            for key in keys:
                if key in self._queues:
                    outcome.queues[self._queues[key]] = 1.0
        else:
            outcome.reason = self._refusal(message.exchange, keys)
            if outcome.reason:
                return outcome
            self._walk(message, keys, outcome)
        if not outcome.queues:
            outcome.reason = NO_BINDING
        return outcome

    def _refusal(self, name: str, keys: list[str]) -> str:
        """Return the reason why a broker would refuse a publish, or "" if it would not."""
        exchange = self._topology.exchanges.get(name)
        if exchange is None:
            return NO_EXCHANGE
        if exchange.internal:
            return INTERNAL
        if self._topology.strict_keys and self._matchers[name].has_patterns:
            try:
                for key in keys:
                    check_strict_routing_key(key)
            except PreconditionFailed:
                return NOT_STRICT
        return ""

    def _walk(self, message: MessageKey, keys: list[str], outcome: RouteResult) -> None:
        pending: list[tuple[str, float]] = [(message.exchange, 1.0)]
        visited = {message.exchange}
        while pending:
            name, share = pending.pop()
            matcher = self._matchers[name]
            matched: dict[int, None] = {}
            for key in keys if matcher.looks_at_keys else keys[:1]:
                matched.update(dict.fromkeys(matcher.match(key, message)))
            if matched:
                share *= matcher.share()
            ends: list[int | str] = []
            for number in matched:
                outcome.bindings[number] = share
                ends.append(self._ends[number])
            alternate = self._topology.exchanges[name].alternate
            if not matched and alternate in self._matchers:
                ends.append(alternate)
            for end in ends:
                if isinstance(end, int):
                    outcome.queues[end] = max(share, outcome.queues.get(end, 0.0))
                elif end not in visited:
                    visited.add(end)
                    pending.append((end, share))


def copies(text: str | None) -> list[str]:
    """Return the routing keys in the text of a CC header, a JSON array."""
    if not text or not text.startswith("["):
        return []
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [key for key in listed if isinstance(key, str)] if isinstance(listed, list) else []
