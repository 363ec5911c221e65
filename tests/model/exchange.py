"""Exchanges of the reference broker: bindings as a list, matching by definition.

Every message is held against every binding; nothing is indexed or remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.queue import Message

#: The name of the default exchange.
DEFAULT = ""
DELAYED = "x-delayed-message"
HISTORY = "x-recent-history"
#: How many messages an exchange with a history keeps.
HISTORY_LENGTH = 2
#: What an exchange of a type must be declared with.
TYPE_ARGUMENTS: dict[str, dict[str, Any]] = {
    DELAYED: {"x-delayed-type": "topic"},
    HISTORY: {"x-recent-history-length": HISTORY_LENGTH},
}


@dataclass(frozen=True)
class Binding:
    """A binding; two are the same if all of it is."""

    source: str
    to_queue: bool
    destination: str
    key: str
    arguments: tuple[tuple[str, Any], ...] = ()


@dataclass
class Exchange:
    """An exchange and what was declared of it."""

    name: str
    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str = ""
    bindings: list[Binding] = field(default_factory=list)
    history: list[Message] = field(default_factory=list)

    def keep(self, message: Message) -> None:
        """Remember a message, if the exchange does so."""
        if self.kind == HISTORY:
            self.history = [*self.history, message][-HISTORY_LENGTH:]

    def matching(self, key: str, headers: dict[str, Any]) -> list[Binding]:
        """The bindings that a message with this key matches."""
        return [binding for binding in self.bindings if self._matches(binding, key, headers)]

    def _matches(self, binding: Binding, key: str, headers: dict[str, Any]) -> bool:
        if self.kind in ("fanout", HISTORY):
            return True
        if self.kind == "direct":
            return binding.key == key
        if self.kind in ("topic", DELAYED):
            return topic_matches(words(binding.key), words(key))
        return headers_match(dict(binding.arguments), headers)


@dataclass
class Waiting:
    """A message that an exchange delays."""

    due_ms: int
    exchange: Exchange
    message: Message


def words(key: str) -> list[str]:
    """The words of a key; the empty key has none."""
    return key.split(".") if key else []


def topic_matches(pattern: list[str], key: list[str]) -> bool:
    """Whether `*` (one word) and `#` (any number) can stand for what the key has."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(topic_matches(pattern[1:], key[skip:]) for skip in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and topic_matches(pattern[1:], key[1:])


def headers_match(wanted: dict[str, Any], headers: dict[str, Any]) -> bool:
    """Whether headers satisfy a binding's arguments."""
    how = wanted.get("x-match", "all")
    with_x = how.endswith("-with-x")
    found = [
        name in headers and (value is None or _same(value, headers[name]))
        for name, value in wanted.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    ]
    return any(found) if how.startswith("any") else all(found)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same without any conversion."""
    return type(one) is type(other) and one == other
