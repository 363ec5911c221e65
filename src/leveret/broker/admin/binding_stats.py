"""Snapshots of the bindings of a queue or an exchange, or between two of them, some at a time."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.admin.stats import BindingStats, QueueNames
from leveret.broker.node.broker import Broker
from leveret.broker.topology.binding import Binding


@final
class BindingsOf:
    """Some bindings of a vhost, and those of some queues to the default exchange before them."""

    def __init__(self, vhost: str, bindings: list[Binding], names: list[str]) -> None:
        self._vhost: Final = vhost
        self._bindings: Final = bindings
        self._names: Final = names
        self._next: i64 = 0

    def take(self, count: i64) -> list[BindingStats]:
        """Return the snapshots of the next `count` bindings at most; an empty list at the end."""
        taken: list[BindingStats] = []
        size = len(self._names)
        while len(taken) < count and self._next < size + len(self._bindings):
            at = self._next
            self._next += 1
            if at < size:
                name = self._names[at]
                taken.append(BindingStats(self._vhost, "", name, True, name, {}, b""))
                continue
            binding = self._bindings[at - size]
            if not binding.has_ended() and binding.identity in binding.source.bindings:
                taken.append(
                    BindingStats(
                        self._vhost,
                        binding.source.name,
                        binding.destination,
                        binding.queue is not None,
                        binding.binding_key,
                        binding.arguments,
                        binding.identity[3],
                    )
                )
        return taken


def bindings_of_queue(broker: Broker, vhost: str, name: str) -> BindingsOf:
    """Return the bindings of a queue that is there."""
    found = broker.vhosts[vhost]
    queue = found.queues.by_name[name]
    return BindingsOf(vhost, found.exchanges.bindings_to(queue), [name])


def bindings_from(broker: Broker, vhost: str, name: str) -> BindingsOf:
    """Return the bindings whose source is an exchange that is there."""
    if not name:
        names = [queue for _, queue in QueueNames(broker, vhost).take(0x7FFFFFFF)]
        return BindingsOf(vhost, [], names)
    return BindingsOf(
        vhost, list(broker.vhosts[vhost].exchanges.by_name[name].bindings.values()), []
    )


def bindings_to_exchange(broker: Broker, vhost: str, name: str) -> BindingsOf:
    """Return the bindings whose destination is an exchange that is there."""
    return BindingsOf(vhost, list(broker.vhosts[vhost].exchanges.by_name[name].bound_from), [])


def bindings_between(
    broker: Broker, vhost: str, source: str, destination: str, to_queue: bool
) -> BindingsOf:
    """Return the bindings of two ends that are there."""
    found = broker.vhosts[vhost]
    if not source:
        return BindingsOf(vhost, [], [destination] if to_queue else [])
    if to_queue:
        bindings = found.exchanges.bindings_to(found.queues.by_name[destination])
    else:
        bindings = list(found.exchanges.by_name[destination].bound_from)
    return BindingsOf(vhost, [one for one in bindings if one.source.name == source], [])
