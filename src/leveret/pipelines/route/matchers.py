"""The exchange types for the route job, which match messages with numbered bindings.

The topic trie, the headers matcher and the hash ring are the broker's own (`leveret.routing`).  As
in `broker.exchanges.types`, each class uses the parts of bindings and messages that matter for its
type.

Invariant: only one thread at a time uses a matcher, because the trie requires this.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from leveret.pipelines.route.topology import RecordedBinding, RecordedExchange, TopologyError
from leveret.routing.headers import HeadersMatcher
from leveret.routing.murmur import partition_of
from leveret.routing.ring import HashRing, ring_hash
from leveret.routing.topic import TopicTrie

#: The number of points of a ring that one call creates.
_POINTS_AT_ONCE: Final = 1_000_000

_HASH_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")


@dataclass(frozen=True, slots=True)
class MessageKey:
    """The parts of a message that routing uses.

    `properties` contains the properties that a hash exchange can use, as text.
    """

    exchange: str
    routing_key: str
    headers: Mapping[str, str | None] = field(default_factory=dict)
    properties: Mapping[str, str | None] = field(default_factory=dict)


class Matcher(ABC):
    """Matches messages with the bindings of one exchange, which are identified by numbers."""

    #: False if the type ignores routing keys, so that only the first of several keys is matched.
    looks_at_keys = True

    #: True if keys are matched by words, so that a vhost may require strict keys.
    has_patterns = False

    def __init__(self, exchange: RecordedExchange) -> None:
        self.exchange = exchange

    @abstractmethod
    def add(self, number: int, binding: RecordedBinding) -> None:
        """Add a binding.  Raises: AmqpError, TopologyError if it is invalid."""

    @abstractmethod
    def match(self, key: str, message: MessageKey) -> list[int]:
        """Return the bindings that match."""

    def share(self) -> float:
        """Return the share of the messages that each match gets."""
        return 1.0

    def header_names(self) -> set[str]:
        """Return the names of the headers that the exchange uses."""
        return set()

    def property_names(self) -> set[str]:
        """Return the names of the properties that the exchange uses."""
        return set()


class Direct(Matcher):
    """Matches bindings whose binding key equals the routing key."""

    def __init__(self, exchange: RecordedExchange) -> None:
        super().__init__(exchange)
        self._by_key: dict[str, list[int]] = {}

    def add(self, number: int, binding: RecordedBinding) -> None:
        """Index a binding by its key."""
        self._by_key.setdefault(binding.binding_key, []).append(number)

    def match(self, key: str, message: MessageKey) -> list[int]:
        """Return the bindings with this key."""
        return self._by_key.get(key, [])


class Topic(Matcher):
    """Matches topic patterns with the broker's trie."""

    has_patterns = True

    def __init__(self, exchange: RecordedExchange) -> None:
        super().__init__(exchange)
        self._trie = TopicTrie()

    def add(self, number: int, binding: RecordedBinding) -> None:
        """Index a binding by the words of its key."""
        self._trie.insert(binding.binding_key, number)

    def match(self, key: str, message: MessageKey) -> list[int]:
        """Return the bindings whose pattern matches."""
        return self._trie.match(key)  # type: ignore[return-value]  # what `add` put in


class Fanout(Matcher):
    """Matches all bindings."""

    looks_at_keys = False

    def __init__(self, exchange: RecordedExchange) -> None:
        super().__init__(exchange)
        self._all: list[int] = []

    def add(self, number: int, binding: RecordedBinding) -> None:
        """Add a binding."""
        self._all.append(number)

    def match(self, key: str, message: MessageKey) -> list[int]:
        """Return all bindings."""
        return self._all


class Random(Fanout):
    """Matches all bindings, each with the share of messages that a random choice gives it."""

    def share(self) -> float:
        """Return 1 divided by the number of bindings."""
        return 1.0 / len(self._all)


class Headers(Matcher):
    """Matches headers with the broker's matcher; arguments and headers are compared as text."""

    looks_at_keys = False

    def __init__(self, exchange: RecordedExchange) -> None:
        super().__init__(exchange)
        self._matchers: list[tuple[int, HeadersMatcher]] = []
        self._names: set[str] = set()

    def add(self, number: int, binding: RecordedBinding) -> None:
        """Create the matcher of a binding.  Raises: PreconditionFailed for an invalid x-match."""
        texts: dict[str, object] = {k: header_text(v) for k, v in binding.arguments.items()}
        self._matchers.append((number, HeadersMatcher(texts)))
        self._names.update(texts)

    def match(self, key: str, message: MessageKey) -> list[int]:
        """Return the bindings whose arguments match the headers."""
        headers: dict[str, object] = {**message.headers}
        return [number for number, matcher in self._matchers if matcher.matches(headers)]

    def header_names(self) -> set[str]:
        """Return the names in the arguments of all bindings."""
        return self._names


class ConsistentHash(Matcher):
    """Selects a binding with the broker's hash ring; the binding key is a weight."""

    looks_at_keys = False

    def __init__(self, exchange: RecordedExchange) -> None:
        super().__init__(exchange)
        self._ring = HashRing()
        self._header = self._named("hash-header")
        self._property = self._named("hash-property")
        if self._header and self._property:
            raise TopologyError(
                f"exchange {exchange.name!r}: hash-header and hash-property are mutually exclusive"
            )
        if self._property and self._property not in _HASH_PROPERTIES:
            raise TopologyError(
                f"exchange {exchange.name!r}: there is no hash-property {self._property!r}"
            )

    def _named(self, argument: str) -> str:
        value = self.exchange.arguments.get(argument, "")
        if not isinstance(value, str):
            raise TopologyError(f"exchange {self.exchange.name!r}: {argument} should be a name")
        return value

    def add(self, number: int, binding: RecordedBinding) -> None:
        """Add a binding to the ring.  Raises: TopologyError if its key is not a weight."""
        digits = binding.binding_key.removeprefix("+")
        if not digits.isascii() or not digits.isdigit() or int(digits) < 1:
            raise TopologyError(f"binding {binding}: the key should be a weight")
        kind = "queue" if binding.to_queue else "exchange"
        self._ring.insert(number, f"{kind} {binding.destination}", int(digits))
        # Create all points at once; only a broker needs to do this in slices.
        while self._ring.owes():
            self._ring.settle(_POINTS_AT_ONCE)

    def match(self, key: str, message: MessageKey) -> list[int]:
        """Return the binding that the hashed value selects."""
        value: str | None = key
        if self._header:
            value = message.headers.get(self._header)
        elif self._property:
            value = message.properties.get(self._property)
        target = self._ring.find(ring_hash((value or "").encode("utf-8", "surrogateescape")))
        return [target] if isinstance(target, int) else []

    def header_names(self) -> set[str]:
        """Return the header that is hashed."""
        return {self._header} if self._header else set()

    def property_names(self) -> set[str]:
        """Return the property that is hashed."""
        return {self._property} if self._property else set()


class ModulusHash(Matcher):
    """Selects a destination, in the order of their names, by the hash of the routing key."""

    looks_at_keys = False

    def __init__(self, exchange: RecordedExchange) -> None:
        super().__init__(exchange)
        self._ends: dict[tuple[bool, str], int] = {}
        self._ordered: list[int] = []
        self._stale = False

    def add(self, number: int, binding: RecordedBinding) -> None:
        """Add a binding; several bindings to one destination count as one."""
        self._ends[binding.to_queue, binding.destination] = number
        self._stale = True

    def match(self, key: str, message: MessageKey) -> list[int]:
        """Return the binding that the routing key selects."""
        if self._stale:
            self._ordered = [self._ends[end] for end in sorted(self._ends)]
            self._stale = False
        if not self._ordered:
            return []
        digest = ring_hash(key.encode("utf-8", "surrogateescape"))
        return [self._ordered[digest % len(self._ordered)]]


class SuperStream(Matcher):
    """Selects a partition by the hash of the routing key; the binding key is its number."""

    looks_at_keys = False

    def __init__(self, exchange: RecordedExchange) -> None:
        super().__init__(exchange)
        self._partitions: dict[int, list[int]] = {}
        declared = exchange.arguments.get("x-super-stream-partitions")
        self._declared = declared if isinstance(declared, int) else 0

    def add(self, number: int, binding: RecordedBinding) -> None:
        """Add a partition.  Raises: TopologyError if its key is not a number."""
        key = binding.binding_key
        if not key.isascii() or not key.isdigit():
            raise TopologyError(f"binding {binding}: the key should be a partition's number")
        self._partitions.setdefault(int(key), []).append(number)

    def match(self, key: str, message: MessageKey) -> list[int]:
        """Return the bindings of the key's partition."""
        if not self._partitions:
            return []
        raw = key.encode("utf-8", "surrogateescape")
        count = self._declared if self._declared > 0 else len(self._partitions)
        return self._partitions.get(partition_of(raw, count), [])


_KINDS: Final[dict[str, type[Matcher]]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": Headers,
    "x-consistent-hash": ConsistentHash,
    "x-local-random": Random,
    "x-modulus-hash": ModulusHash,
    "x-random": Random,
    # Messages that this exchange delivers to new bindings are not traffic.
    "x-recent-history": Fanout,
    "x-super-stream": SuperStream,
}


def make_matcher(exchange: RecordedExchange) -> Matcher:
    """Return a matcher, without bindings, for an exchange.  Raises: TopologyError."""
    kind = _KINDS.get(exchange.kind)
    if kind is None:
        raise TopologyError(
            f"exchange {exchange.name!r}: the type {exchange.kind!r} cannot be routed here; "
            f"those that can: {', '.join(_KINDS)}"
        )
    return kind(exchange)


def header_text(value: object) -> str | None:
    """Return a value of a definitions file as text, like a header in Spark's tables."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
