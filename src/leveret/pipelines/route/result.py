"""What routing traffic through a topology found: queues, bindings, and what goes nowhere."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.pipelines.route.topology import Binding


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """What one queue would get; `before` is what it gets in the topology compared with."""

    queue: str
    messages: int
    bytes: int
    before: int
    hot: bool


@dataclass(frozen=True, slots=True)
class BindingLoad:
    """How many messages one binding matched."""

    binding: Binding
    messages: int


@dataclass(frozen=True, slots=True)
class Unroutable:
    """Messages of one key that would go nowhere, and why."""

    exchange: str
    routing_key: str
    reason: str
    messages: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Messages of one key that would go to other queues than in the topology compared with."""

    exchange: str
    routing_key: str
    messages: int
    gains: tuple[str, ...]
    losses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Routes:
    """What a topology would do.  Behind a random exchange counts are what is to be expected.

    `queues` are all of the topology, those with the most messages first, and `bindings` likewise;
    `unroutable` and `moved` are the `KEYS_MAX` keys with the most messages.
    """

    source: str
    topology: str
    against: str | None
    messages: int
    bytes: int
    keys: int
    queues: tuple[QueueLoad, ...]
    bindings: tuple[BindingLoad, ...]
    unroutable: tuple[Unroutable, ...]
    unroutable_keys: int
    unroutable_messages: int
    moved: tuple[Moved, ...]
    moved_keys: int
    moved_messages: int

    @property
    def unused(self) -> tuple[Binding, ...]:
        """The bindings that no message matched."""
        return tuple(load.binding for load in self.bindings if load.messages == 0)

    @property
    def hot(self) -> tuple[QueueLoad, ...]:
        """The queues that get much more than the others."""
        return tuple(load for load in self.queues if load.hot)
