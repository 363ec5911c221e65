"""Dry runs, which find the exchanges and queues that a message would reach without publishing it.

The exchanges route as they do for a message, one after another, so that each step is reported.  The
cost limit of a message applies here too.  A delay is reported, and the routing continues.

A dry run stops after `DRY_RUN_STEPS_MAX` steps.  Nobody would read more, and writing 60,000 takes
ten times as long as routing a message to as many queues.
"""

from __future__ import annotations

from typing import Final, final

from leveret.broker.attributes.cc_bcc import copy_keys
from leveret.broker.attributes.delay import delay_of
from leveret.broker.exchanges.exchange import LOOKS_PER_EXCHANGE, Exchange, Routing
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import PreconditionFailed
from leveret.limits import DRY_RUN_STEPS_MAX


@final
class Way:
    """A step of the route: from an exchange to a queue, or to another exchange."""

    def __init__(self, source: str, destination: str, to_queue: bool, alternate: bool) -> None:
        self.source: Final = source
        self.destination: Final = destination
        self.to_queue: Final = to_queue
        self.alternate: Final = alternate


@final
class DryRun:
    """The destinations that a message would reach; exchanges in the order of routing."""

    def __init__(self) -> None:
        self.exchanges: list[str] = []
        self.queues: list[str] = []
        self.ways: list[Way] = []
        #: The exchanges that would delay the message.
        self.delayed_by: list[str] = []
        #: The exchanges that choose one of several destinations, a different one for the next
        #: message.
        self.chooses: list[str] = []
        #: Whether steps were left out.
        self.left = False
        self._seen: set[str] = set()

    def _note(self, source: str, destination: str, to_queue: bool) -> bool:
        """Add a step; return False if the limit is reached."""
        self.left = len(self.ways) >= DRY_RUN_STEPS_MAX
        if not self.left:
            self.ways.append(Way(source, destination, to_queue, False))
        return not self.left

    def add(self, source: str, routing: Routing) -> list[Exchange]:
        """Add the destinations of an exchange; return the exchanges among them."""
        for target in routing.targets:
            if target in routing.taps:
                continue
            name = str(target.name)
            if not self._note(source, name, True):
                return []
            if name not in self._seen:
                self._seen.add(name)
                self.queues.append(name)
        further = sorted(routing.visited(), key=_name)
        for exchange in further:
            if not self._note(source, exchange.name, False):
                return []
        return further


def dry_run(vhost: Vhost, exchange: Exchange, routing_key: str, properties: bytes) -> DryRun:
    """Return the destinations that a message would reach from an exchange; change nothing.

    Raises: PreconditionFailed (406) if routing it would exceed the cost limit of a message, and for
    an invalid CC or BCC.
    """
    found = DryRun()
    reached = {exchange}
    pending = [exchange]
    looks = 0
    while pending:
        source = pending.pop(0)
        found.exchanges.append(source.name)
        routing = _leads(vhost, source, routing_key, properties, looks)
        looks = int(routing.looks)
        vhost.core.scheduler.spent += routing.cost()
        if routing.over:
            raise PreconditionFailed(routing.refusal)
        if source.delays and delay_of(routing.headers()) > 0:
            found.delayed_by.append(source.name)
        if source.chooses:
            found.chooses.append(source.name)
        further = found.add(source.name, routing)
        if found.left:
            return found
        if not further and not routing.reached() and source.alternate:
            alternate = vhost.exchanges.by_name.get(source.alternate)
            if alternate is not None:
                found.ways.append(Way(source.name, alternate.name, False, True))
                further.append(alternate)
        for one in further:
            if one not in reached:
                reached.add(one)
                pending.append(one)
    return found


def _leads(
    vhost: Vhost, source: Exchange, routing_key: str, properties: bytes, looks: int
) -> Routing:
    """Return the routing of one exchange; `looks` is the cost of the dry run so far."""
    more_keys = copy_keys(properties) if properties else []
    if not source.name:
        return vhost.route(source, routing_key, properties, more_keys)
    routing = Routing(routing_key, properties)
    routing.looks = looks
    routing.look(LOOKS_PER_EXCHANGE)
    for key in [routing_key, *more_keys] if source.looks_at_keys else [routing_key]:
        routing.routing_key = key
        if not routing.over:
            source.route(routing)
    return routing


def _name(exchange: Exchange) -> str:
    return exchange.name
