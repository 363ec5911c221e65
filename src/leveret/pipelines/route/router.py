"""Where a message goes in a topology.

The walk over exchanges is the broker's (`broker.exchange.Routing`): each exchange is visited once
and each queue taken once, so cycles end; an exchange whose bindings matched nothing hands on to its
alternate one.  A test routes the same messages through a broker and compares.

Headers come as text, as Spark's tables have them, so a binding's arguments are compared as text: a
header of the number 1 and one of the text "1" are not told apart.

A random exchange's choice cannot be foreseen: all that it may choose are taken, each for its share.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from leveret.errors import AmqpError, PreconditionFailed
from leveret.pipelines.route.matchers import Matcher, Traffic, make_matcher
from leveret.pipelines.route.topology import Topology, TopologyError
from leveret.routing.keys import check_strict_routing_key

#: Why a message goes nowhere; `""` where it goes somewhere.
NO_EXCHANGE: Final = "no such exchange"
INTERNAL: Final = "internal exchange"
NOT_STRICT: Final = "key is not strict"
NO_BINDING: Final = "no binding matches"

#: The header with more routing keys.  BCC is in no message that a reader gets.
COPIES: Final = "CC"


@dataclass(slots=True)
class Outcome:
    """Where a message goes: queues with the share that each gets, and bindings that matched.

    Queues and bindings are by their numbers in the topology.  A share is 1 but behind a random
    exchange.
    """

    queues: dict[int, float] = field(default_factory=dict)
    bindings: dict[int, float] = field(default_factory=dict)
    reason: str = ""


class Router:
    """A topology with its bindings indexed.

    Raises: TopologyError for an exchange or a binding that cannot be routed through.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._queues = {name: number for number, name in enumerate(topology.queues)}
        self._matchers: dict[str, Matcher] = {
            name: make_matcher(exchange) for name, exchange in topology.exchanges.items()
        }
        #: Of each binding: to a queue, its number; to an exchange, its name.
        self._ends: list[int | str] = []
        for number, binding in enumerate(topology.bindings):
            try:
                self._matchers[binding.source].add(number, binding)
            except AmqpError as error:
                raise TopologyError(f"binding {binding}: {error.text}") from None
            end = self._queues[binding.destination] if binding.to_queue else binding.destination
            self._ends.append(end)

    def header_names(self) -> set[str]:
        """Return the headers that some exchange looks at, CC among them."""
        return {COPIES}.union(*(matcher.header_names() for matcher in self._matchers.values()))

    def property_names(self) -> set[str]:
        """Return the properties that some exchange looks at."""
        return set[str]().union(*(matcher.property_names() for matcher in self._matchers.values()))

    def route(self, message: Traffic) -> Outcome:
        """Return where a message goes."""
        keys = [message.routing_key, *copies(message.headers.get(COPIES))]
        outcome = Outcome()
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
        """Return why a broker would refuse a publish."""
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

    def _walk(self, message: Traffic, keys: list[str], outcome: Outcome) -> None:
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
    """Return the routing keys in the text of a CC header: an array as JSON."""
    if not text or not text.startswith("["):
        return []
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [key for key in listed if isinstance(key, str)] if isinstance(listed, list) else []
