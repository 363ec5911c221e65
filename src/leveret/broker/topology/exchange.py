"""An exchange: a name, attributes and the bindings from it.  Its type decides what matches.

The types are siblings in `exchanges/`; each keeps its own index of the bindings and answers which
of them match.  Routing over several exchanges is in `Routing`: it visits each exchange and takes
each queue once, so cycles end and a queue that matched twice gets one copy (behaviours 36, 37).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.queue.host import Destinations
from leveret.broker.values.applied_policy import AppliedPolicy
from leveret.broker.values.delay import delay_of
from leveret.limits import DELAY_MS_MAX, ROUTING_MATCHES_MAX
from leveret.names import Name
from leveret.wire.properties import property_headers

if TYPE_CHECKING:
    from leveret.broker.classic.delayed import DelayedMessages
    from leveret.broker.core.turn import Turn
    from leveret.broker.queue.queue import Queue
    from leveret.broker.topology.binding import Binding
    from leveret.message import Message

#: The type whose exchanges delay; the argument `x-delayed-type` says how they route.
DELAYED_TYPE: Final = "x-delayed-message"


@mypyc_attr(allow_interpreted_subclasses=True)
class Exchange:
    """What all exchange types share; the name is one that was cleaned or kept."""

    def __init__(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
    ) -> None:
        self.name = Name(name)
        #: The name as messages carry it.
        self.name_bytes: Final = name.encode("utf-8", "surrogateescape")
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        #: The policy that applies to it (`vhost.policies`).
        self.policy: AppliedPolicy | None = None
        #: True where messages may request a delay, and the store of those that did.
        self.delays = False
        self.delayed: DelayedMessages | None = None
        #: The alternate exchange for messages that no binding matched; `""` for none.
        self.alternate = ""
        self.configure(arguments)
        #: Bindings from this exchange by identity.
        self.bindings: dict[tuple[bool, str, str, bytes], Binding] = {}
        #: Bindings to this exchange, which go when it is deleted.
        self.bound_from: dict[Binding, None] = {}
        self.deleted = False
        #: True where routing keys are matched by words, so that a vhost may ask for strict ones.
        self.has_patterns = False
        #: False where the type ignores routing keys, so that it routes once for several keys.
        self.looks_at_keys = True
        #: The group of the journal that holds its definition.
        self.define_group: i64 = 0
        self.published_in: i64 = 0
        self.start_index()

    def configure(self, merged: dict[str, object]) -> None:
        """Apply the exchange's arguments, merged with its policy."""
        alternate = merged.get("alternate-exchange")
        self.alternate = alternate if isinstance(alternate, str) else ""
        self.delays = self.kind == DELAYED_TYPE or merged.get("delayed-message") is True

    def start_index(self) -> None:
        """Make the empty index of this type; a type without one leaves it out."""

    def equip(self, turn: Turn) -> None:
        """Make what this type keeps beside its bindings, when the exchange is added to a vhost."""

    def drop(self) -> None:
        """Drop what it keeps, and what it delays, because the exchange is deleted."""
        if self.delayed is not None:
            self.delayed.drop()

    def replayed(self) -> list[Message]:
        """Return the messages that a new binding gets at once, oldest first."""
        return []

    def add(self, binding: Binding) -> None:
        """Add `binding` to the index of this type."""
        raise RuntimeError("an exchange type indexes its bindings")

    def remove(self, binding: Binding) -> None:
        """Remove `binding` from the index of this type."""
        raise RuntimeError("an exchange type indexes its bindings")

    def route(self, routing: Routing) -> None:
        """Give `routing` every binding that matches."""
        raise RuntimeError("an exchange type routes")

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the exchange as its journal record holds it."""
        return {
            "vhost": vhost,
            "name": self.name,
            "type": self.kind,
            "auto_delete": self.auto_delete,
            "internal": self.internal,
            "arguments": self.arguments,
        }


@final
class Routing(Destinations):
    """The routing of one message, or of one routing key when the result does not depend on more.

    After `run`, `queues` holds each matched queue once and `dynamic` tells that message headers
    were looked at, so that the result holds for this message alone.
    """

    def __init__(self, routing_key: str, properties: bytes) -> None:
        super().__init__()
        self.routing_key = routing_key
        self.properties = properties
        #: The keys of the headers CC and BCC.
        self.more_keys: list[str] = []
        self.dynamic = False
        #: Why a client's publish must be refused (406); what the broker itself publishes is not.
        self.refusal = ""
        self._headers: dict[str, object] | None = None
        self._seen_queues: set[Queue] = set()
        self._pending: list[Exchange] = []
        self._visited: set[Exchange] = set()
        #: True to route past exchanges that would delay the message.
        self.ignores_delays = False
        self._matched = False

    def headers(self) -> dict[str, object]:
        """Return the message's headers, decoded once; empty when it has none."""
        self.dynamic = True
        if self._headers is None:
            self._headers = (property_headers(self.properties) if self.properties else None) or {}
        return self._headers

    def take(self, binding: Binding) -> None:
        """Add the destination of a binding that matched."""
        self._matched = True
        self.matched += 1
        if binding.queue is not None:
            self.take_queue(binding.queue)
        elif binding.exchange is not None:
            self._visit(binding.exchange)

    def take_queue(self, queue: Queue) -> None:
        """Add a queue that matched, once."""
        self._matched = True
        self.take_tap(queue)

    def take_tap(self, queue: Queue) -> None:
        """Add a tap, which does not count as a match."""
        if queue not in self._seen_queues:
            self._seen_queues.add(queue)
            self.queues.append(queue)

    def visited(self) -> list[Exchange]:
        """Return the exchanges that the message reached."""
        return list(self._visited)

    def _visit(self, exchange: Exchange) -> None:
        if exchange not in self._visited:
            self._visited.add(exchange)
            self._pending.append(exchange)

    def _is_delayed(self, exchange: Exchange) -> bool:
        """Route the message to the exchange's store, if it requests a delay, and return True."""
        delay = delay_of(self.headers())
        if delay <= 0 or exchange.delayed is None:
            return False
        if delay > DELAY_MS_MAX:
            self.refusal = f"an x-delay of {delay} ms exceeds {DELAY_MS_MAX}"
        self.take_queue(exchange.delayed)
        return True

    def run(self, exchange: Exchange, exchanges: dict[str, Exchange]) -> None:
        """Route from `exchange`; `exchanges` are those of the vhost, for alternate ones."""
        self._visit(exchange)
        while self._pending:
            current = self._pending.pop()
            if current.delays and not self.ignores_delays and self._is_delayed(current):
                continue
            self._matched = False
            current.route(self)
            if self.more_keys and current.looks_at_keys:
                self._route_more(current)
            if not self._matched and current.alternate:
                alternate = exchanges.get(current.alternate)
                if alternate is not None:
                    self._visit(alternate)

    def _route_more(self, exchange: Exchange) -> None:
        """Route by the other keys too; all together count as one for an alternate exchange."""
        first = self.routing_key
        for key in self.more_keys:
            if self.matched > ROUTING_MATCHES_MAX:
                self.refusal = (
                    f"the routing keys in CC and BCC match more than {ROUTING_MATCHES_MAX} bindings"
                )
                break
            self.routing_key = key
            exchange.route(self)
        self.routing_key = first
