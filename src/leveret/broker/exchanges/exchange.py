"""The base of exchange types, and the routing of messages over bindings and alternate exchanges.

Each type in `exchanges/` has its own index of the bindings, and finds the matching ones.  If no
binding matches, the message goes to the alternate exchange, if there is one.

`Routing` routes over several exchanges.  It visits each exchange once and takes each queue once, so
cycles end, and a queue that matched twice gets one copy (behaviours 36: binding identity, and 37:
exchange-to-exchange bindings).

The cost of one message is limited.  Routing counts everything it examines, and stops at
`ROUTING_LOOKS_MAX`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.attributes.delay import delay_of
from leveret.broker.policies.policy import Policy
from leveret.broker.queue.target import Destinations, Target
from leveret.broker.scheduler.costs import LOOKS_PER_COST
from leveret.limits import DELAY_MS_MAX, ROUTING_LOOKS_MAX, TABLE_BYTES_PER_COST
from leveret.names import Name
from leveret.wire.properties import property_headers

if TYPE_CHECKING:
    from leveret.broker.core import Core
    from leveret.broker.delayed.delayed import DelayedMessages
    from leveret.broker.exchanges.binding import Binding
    from leveret.broker.scheduler.task import Task
    from leveret.message import Message

#: The type of delayed exchanges.  They route as the type in their argument `x-delayed-type`.
DELAYED_TYPE: Final = "x-delayed-message"

#: The looks counted for each visited exchange, in addition to its bindings.
LOOKS_PER_EXCHANGE: Final = 4


@final
class Declared:
    """The attributes of an exchange in its declaration."""

    def __init__(
        self,
        name: str,
        kind: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
    ) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.durable: Final = durable
        self.auto_delete: Final = auto_delete
        self.internal: Final = internal
        self.arguments: Final = arguments


@mypyc_attr(allow_interpreted_subclasses=True)
class Exchange:
    """The base of all exchange types."""

    def __init__(self, declared: Declared) -> None:
        self.name = Name(declared.name)
        #: The name in bytes, as in messages.
        self.name_bytes: Final = declared.name.encode("utf-8", "surrogateescape")
        self.kind = declared.kind
        self.durable = declared.durable
        self.auto_delete = declared.auto_delete
        self.internal = declared.internal
        self.arguments = declared.arguments
        #: The policy that applies to it (`vhost.policies`).
        self.policy: Policy | None = None
        #: True if messages may request a delay, and the store of delayed messages.
        self.delays = False
        self.delayed: DelayedMessages | None = None
        #: The alternate exchange for messages without a matching binding, or `""` for none.
        self.alternate = ""
        self.configure(self.arguments)
        #: Bindings from this exchange by identity.
        self.bindings: dict[tuple[bool, str, str, bytes], Binding] = {}
        #: Bindings to this exchange, which are removed with it.
        self.bound_from: dict[Binding, None] = {}
        #: The memory that the vhost has booked for the exchange and the bindings from it.
        self.booked: i64 = 0
        #: The last task that completes the index.  It may be over.
        self.indexing: Task | None = None
        self.deleted = False
        #: True if routing keys are matched word by word, so that a vhost may require strict keys.
        self.has_patterns = False
        #: False if the type routes only once for several routing keys.
        self.looks_at_keys = True
        #: True if one of several bindings is chosen for each message.
        self.chooses = False
        #: The group of the journal that contains its definition.
        self.define_group: i64 = 0
        self.published_in: i64 = 0

    def configure(self, merged: dict[str, object]) -> None:
        """Apply the exchange's arguments, merged with its policy."""
        alternate = merged.get("alternate-exchange")
        self.alternate = alternate if isinstance(alternate, str) else ""
        self.delays = self.kind == DELAYED_TYPE or merged.get("delayed-message") is True

    def equip(self, core: Core) -> None:
        """Create the parts of the type, when the exchange is added to a vhost."""

    def drop(self) -> None:
        """Drop the parts of the type and the delayed messages, because the exchange is deleted."""
        if self.delayed is not None:
            self.delayed.drop()

    def replayed(self) -> list[Message]:
        """Return the messages to send to a new binding at once, the oldest first."""
        return []

    def index_bytes(self) -> i64:
        """Return the memory of the type's index, in addition to the bindings themselves."""
        return 0

    def index_cost(self) -> i64:
        """Return the total cost of changes to the index, if they are expensive."""
        return 0

    def owes(self) -> bool:
        """Return whether the index is still incomplete after adding or removing a binding."""
        return False

    def settle_index(self) -> None:
        """Do a small part of the remaining work on the index, which `index_cost` counts."""

    def index_on(self) -> Iterator[int]:
        """Complete the index."""
        while self.owes() and not self.deleted:
            before = self.index_cost()
            self.settle_index()
            yield int(self.index_cost() - before)

    @abstractmethod
    def add(self, binding: Binding) -> None:
        """Add `binding` to the index of this type."""

    @abstractmethod
    def remove(self, binding: Binding) -> None:
        """Remove `binding` from the index of this type."""

    @abstractmethod
    def route(self, routing: Routing) -> None:
        """Pass every matching binding to `routing`, until it is `over`.

        Examined bindings that do not match count too (`Routing.look`).
        """

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the content of the exchange's journal record."""
        return {
            "vhost": vhost,
            "name": self.name,
            "type": self.kind,
            "auto_delete": self.auto_delete,
            "internal": self.internal,
            "arguments": self.arguments,
        }


@final
@mypyc_attr(acyclic=True)
class Routing(Destinations):
    """The routing of one message, or of a routing key if the result depends only on the key.

    After `run`, `targets` contains each matched target once.  `dynamic` is True if the result
    depends on more than the routing key, and is valid only for this message.
    """

    def __init__(self, routing_key: str, properties: bytes) -> None:
        super().__init__([])
        self.routing_key = routing_key
        self.properties = properties
        #: The keys in the headers CC and BCC, or None without them.
        self.more_keys: list[str] | None = None
        self.dynamic = False
        #: The reason to refuse a client's publish (406).  Messages of the broker are not refused.
        self.refusal = ""
        #: The number of looks so far (bindings, places in patterns, conditions on headers), and
        #: whether they reached the limit for one message.
        self.looks: i64 = 0
        self.over = False
        self._headers: dict[str, object] | None = None
        #: The bytes decoded for the headers.
        self._decoded: i64 = 0
        # Most messages reach one exchange and one target, which need no set.
        self._seen: set[Target] | None = None
        self._first: Exchange | None = None
        #: The exchanges reached (None while `_first` is the only one), and those not routed from
        #: yet.
        self._visited: set[Exchange] | None = None
        self._pending: list[Exchange] = []
        #: True to ignore a requested delay.
        self.ignores_delays = False
        self._matched = False

    def headers(self) -> dict[str, object]:
        """Return the message's headers, or an empty dict without headers.  Decode them once."""
        self.dynamic = True
        if self._headers is None:
            self._decoded = len(self.properties)
            self._headers = (property_headers(self.properties) if self.properties else None) or {}
        return self._headers

    def look(self, count: i64) -> None:
        """Count looks of some 0.1 µs each; set `over` if there are too many."""
        self.looks += count
        if self.looks > ROUTING_LOOKS_MAX and not self.over:
            self.over = True
            self.refusal = (
                f"the message would go through more than {ROUTING_LOOKS_MAX} bindings and "
                "wildcards of binding keys: use fewer bindings, or fewer wildcards"
            )

    def cost(self) -> i64:
        """Return the cost of the routing."""
        return self.looks // LOOKS_PER_COST + self._decoded // TABLE_BYTES_PER_COST

    def take(self, binding: Binding) -> None:
        """Add the destination of a matching binding, unless the limit is reached."""
        self.look(1)
        if self.over:
            return
        queue = binding.queue
        if queue is not None:
            if not queue.deleted:
                self.take_target(queue.target)
        elif binding.exchange is not None and not binding.exchange.deleted:
            self._matched = True
            self._visit(binding.exchange)

    def take_all(self, bindings: Iterable[Binding]) -> None:
        """Add the destinations of matching bindings, up to the limit."""
        for binding in bindings:
            self.take(binding)
            if self.over:
                break

    def take_target(self, target: Target) -> None:
        """Add a matching target, unless it was already added."""
        self._matched = True
        if self._is_new(target):
            self.targets.append(target)

    def take_tap(self, tap: Target) -> None:
        """Add a tap, which does not count as a match, unless it was already added."""
        if self._is_new(tap):
            self.targets.append(tap)
            self.taps = (*self.taps, tap)

    def visited(self) -> list[Exchange]:
        """Return the exchanges that the message reached."""
        if self._visited is not None:
            return list(self._visited)
        return [] if self._first is None else [self._first]

    def _is_new(self, target: Target) -> bool:
        """Return whether a target is not in `targets` yet.  If so, the caller must add it."""
        if not self.targets:
            return True
        seen = self._seen
        if seen is None:
            first = self.targets[0]
            if target is first:
                return False
            self._seen = {first, target}
            return True
        if target in seen:
            return False
        seen.add(target)
        return True

    def _visit(self, exchange: Exchange) -> None:
        """Route from an exchange later, unless the message has already reached it."""
        visited = self._visited
        if visited is None:
            if exchange is self._first:
                return
            visited = self._visited = set()
            if self._first is not None:
                visited.add(self._first)
        if exchange not in visited:
            visited.add(exchange)
            self._pending.append(exchange)

    def _is_delayed(self, exchange: Exchange) -> bool:
        """Route the message to the exchange's store and return True, if it requests a delay."""
        delay = delay_of(self.headers())
        if delay <= 0 or exchange.delayed is None:
            return False
        if delay > DELAY_MS_MAX:
            self.refusal = f"an x-delay of {delay} ms exceeds {DELAY_MS_MAX}"
        else:
            self.delay_ms = delay
        self.take_target(exchange.delayed.target)
        return True

    def run(self, exchange: Exchange, exchanges: dict[str, Exchange]) -> None:
        """Route from `exchange`; `exchanges` are all exchanges of the vhost by name."""
        self._first = exchange
        self._run_from(exchange, exchanges)
        while self._pending and not self.over:
            self.look(LOOKS_PER_EXCHANGE)
            self._run_from(self._pending.pop(), exchanges)

    def _run_from(self, exchange: Exchange, exchanges: dict[str, Exchange]) -> None:
        """Take the destinations of an exchange, or visit its alternate exchange."""
        if exchange.delays and not self.ignores_delays and self._is_delayed(exchange):
            return
        self._matched = False
        exchange.route(self)
        if self.more_keys and exchange.looks_at_keys:
            self._route_more(exchange, self.more_keys)
        if not self._matched and exchange.alternate and not self.over:
            alternate = exchanges.get(exchange.alternate)
            if alternate is not None:
                self._visit(alternate)

    def _route_more(self, exchange: Exchange, more_keys: list[str]) -> None:
        """Route by the keys of CC and BCC too."""
        first = self.routing_key
        for key in more_keys:
            self.look(LOOKS_PER_EXCHANGE)
            if self.over:
                break
            self.routing_key = key
            exchange.route(self)
        self.routing_key = first
