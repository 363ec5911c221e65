"""The result of the route job: loads of queues and bindings, and unroutable messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from leveret.pipelines.route.topology import RecordedBinding


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """The number of messages of one queue; `before` is the number in the other topology."""

    queue: str
    messages: int
    bytes: int
    before: int
    hot: bool


@dataclass(frozen=True, slots=True)
class BindingLoad:
    """The number of messages that one binding matched.

    `judged` is False if dead letters, which recorded traffic does not contain, can reach the
    binding.
    """

    binding: RecordedBinding
    messages: int
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Unroutable:
    """The unroutable messages with one exchange and routing key, and the reason."""

    exchange: str
    routing_key: str
    reason: str
    messages: int


@dataclass(frozen=True, slots=True)
class ReroutedKey:
    """The messages of one exchange and key that the two topologies route to different queues."""

    exchange: str
    routing_key: str
    messages: int
    gains: tuple[str, ...]
    losses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Routes:
    """The result of routing.  Counts behind a random exchange are expected values.

    `queues` and `bindings` contain all queues and bindings, those with the most messages first.
    `unroutable` and `moved` contain the 1,000 keys with the most messages.  `first` and `last`
    are the times of the oldest and the newest message, or None if messages have no times.
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
    moved: tuple[ReroutedKey, ...]
    moved_keys: int
    moved_messages: int
    first: datetime | None = None
    last: datetime | None = None

    @property
    def unused(self) -> tuple[RecordedBinding, ...]:
        """The bindings that no message matched and that dead letters cannot reach."""
        return tuple(one.binding for one in self.bindings if one.messages == 0 and one.judged)

    @property
    def not_judged(self) -> tuple[RecordedBinding, ...]:
        """The bindings that no message matched, but that dead letters can reach."""
        return tuple(one.binding for one in self.bindings if one.messages == 0 and not one.judged)

    @property
    def hot(self) -> tuple[QueueLoad, ...]:
        """The queues that get many more messages than the average."""
        return tuple(load for load in self.queues if load.hot)
