"""Filters of stream consumers: by filter value, by routing key, by headers.

A message's filter value is in its header `x-stream-filter-value`.  Without that header, or if it is
not text, the message is unfiltered.  If a filter has several conditions, all must be true.

Each message is matched exactly.  RabbitMQ matches whole chunks with a Bloom filter, and its clients
must filter again; with this broker, they find no message to drop.

Invariant: a filter does not change a message, and its cache of recent results does not change a
result.

Source: RabbitMQ 4.3's `x-stream-filter` and `x-stream-match-unfiltered`; the rest is Leveret's own.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import Arguments, type_name
from leveret.broker.scheduler.costs import TRIE_NODES_PER_COST
from leveret.errors import PreconditionFailed
from leveret.limits import STREAM_FILTER_VALUES_MAX, STREAM_FILTER_WORDS_MAX, TABLE_BYTES_PER_COST
from leveret.message import Message
from leveret.routing.headers import HeadersMatcher
from leveret.routing.topic import TopicTrie
from leveret.wire.properties import property_headers

#: The maximum number of routing keys cached with the filter's result; a full cache is cleared.
STREAM_FILTER_KEYS_KNOWN_MAX: Final = 4096


#: The header with a message's filter value.
FILTER_VALUE: Final = "x-stream-filter-value"

FILTER: Final = "x-stream-filter"
MATCH_UNFILTERED: Final = "x-stream-match-unfiltered"
FILTER_ROUTING_KEY: Final = "x-stream-filter-routing-key"
FILTER_HEADERS: Final = "x-stream-filter-headers"

#: The header's beginning in property bytes.  Messages without these bytes need not be decoded.
_MARK: Final = b"\x15x-stream-filter-value"


@final
class StreamFilter:
    """The conditions of one consumer; None for an absent condition."""

    def __init__(
        self,
        values: set[str] | None,
        match_unfiltered: bool,
        routing_keys: list[str] | None,
        headers: dict[str, object] | None,
    ) -> None:
        """Raises: PreconditionFailed (406) for an invalid pattern or `x-match`."""
        self._values: Final = values
        self._match_unfiltered: Final = match_unfiltered
        self._trie: TopicTrie | None = None
        if routing_keys is not None:
            self._trie = TopicTrie()
            for pattern in routing_keys:
                self._trie.insert(pattern, True)
        self._headers = HeadersMatcher(headers) if headers is not None else None
        #: The cost of the results so far, in a unit that is the same on every machine.
        self.cost: i64 = 0
        #: The results for recent routing keys.
        self.known_keys: dict[bytes, bool] = {}
        # Adjacent messages often have the same properties, and the same result.
        self._last_properties = b""
        self._last_verdict = False

    def matches(self, message: Message) -> bool:
        """Return whether a message matches the filter."""
        if self._trie is not None and not self._key_matches(message.address.routing_key):
            return False
        if self._values is None and self._headers is None:
            return True
        properties = message.properties
        if properties != self._last_properties:
            self._last_verdict = self._properties_match(properties)
            self._last_properties = properties
        return self._last_verdict

    def _key_matches(self, key: bytes) -> bool:
        known = self.known_keys
        verdict = known.get(key)
        if verdict is None:
            trie = self._trie
            assert trie is not None
            before = trie.states_visited
            verdict = len(trie.match(key.decode("utf-8", "surrogateescape"))) > 0
            self.cost += 1 + (trie.states_visited - before) // TRIE_NODES_PER_COST
            if len(known) >= STREAM_FILTER_KEYS_KNOWN_MAX:
                known.clear()
            known[key] = verdict
        return verdict

    def _properties_match(self, properties: bytes) -> bool:
        values = self._values
        matcher = self._headers
        has_value = values is None or properties.find(_MARK) >= 0
        if matcher is None and not has_value:
            return self._match_unfiltered
        self.cost += 1 + i64(len(properties)) // TABLE_BYTES_PER_COST
        headers = property_headers(properties) or {}
        if values is not None:
            value = headers.get(FILTER_VALUE)
            if not isinstance(value, str):
                if not self._match_unfiltered:
                    return False
            elif value not in values:
                return False
        return matcher is None or matcher.matches(headers)


def stream_filter(arguments: Arguments, where: str) -> StreamFilter | None:
    """Return the filter for a consumer's arguments, or None for all messages.

    Raises: PreconditionFailed (406) for an invalid filter; `where` names the stream in the error.
    """
    values = _texts(arguments, FILTER, where)
    unfiltered = arguments.get(MATCH_UNFILTERED, False)
    if not isinstance(unfiltered, bool):
        raise _invalid(MATCH_UNFILTERED, where, f"expected a boolean, got {type_name(unfiltered)}")
    patterns = _texts(arguments, FILTER_ROUTING_KEY, where)
    if patterns is not None and sum(map(_words_behind_any, patterns)) > STREAM_FILTER_WORDS_MAX:
        why = f"at most {STREAM_FILTER_WORDS_MAX} words may follow a '#' in all patterns together"
        raise _invalid(FILTER_ROUTING_KEY, where, why)
    headers = arguments.get(FILTER_HEADERS)
    if headers is not None and not isinstance(headers, dict):
        raise _invalid(FILTER_HEADERS, where, f"expected a table, got {type_name(headers)}")
    if values is None and patterns is None and headers is None:
        return None
    return StreamFilter(None if values is None else set(values), unfiltered, patterns, headers)


def _words_behind_any(pattern: str) -> int:
    """Return the number of words of a pattern after its first `#`."""
    return f".{pattern}.".partition(".#.")[2].count(".")


def _texts(arguments: Arguments, name: str, where: str) -> list[str] | None:
    """Return an argument that is a string or a list of strings, or None if it is absent."""
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise _invalid(name, where, f"expected text or a list of texts, got {type_name(value)}")
    if not value:
        raise _invalid(name, where, "the list is empty")
    if len(value) > STREAM_FILTER_VALUES_MAX:
        raise _invalid(name, where, f"at most {STREAM_FILTER_VALUES_MAX} entries")
    texts: list[str] = []
    for item in value:
        if not isinstance(item, str):
            raise _invalid(name, where, f"expected text in the list, got {type_name(item)}")
        texts.append(item)
    return texts


def _invalid(name: str, where: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{name}' for {where}: \"{why}\"")
