"""Snapshots of bindings: all, those of a queue or an exchange, or those between two ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, final

from leveret.broker.broker import Broker
from leveret.broker.exchanges.binding import Binding
from leveret.broker.stats.stats import queue_names, vhosts_of


@final
class BindingStats:
    """A binding; `arguments_key` distinguishes bindings that differ only in their arguments."""

    def __init__(
        self,
        vhost: str,
        source: str,
        destination: str,
        to_queue: bool,
        binding_key: str,
        arguments: dict[str, object],
        arguments_key: bytes,
    ) -> None:
        self.vhost: Final = vhost
        self.source: Final = source
        self.destination: Final = destination
        self.to_queue: Final = to_queue
        self.binding_key: Final = binding_key
        self.arguments: Final = arguments
        self.arguments_key: Final = arguments_key


def _rows(vhost: str, bindings: list[Binding]) -> Iterator[BindingStats]:
    """Yield bindings of a vhost that still exist."""
    for binding in bindings:
        if not binding.has_ended() and binding.identity in binding.source.bindings:
            yield BindingStats(
                vhost,
                binding.source.name,
                binding.destination,
                binding.queue is not None,
                binding.binding_key,
                binding.arguments,
                binding.identity[3],
            )


def _default_rows(names: Iterator[tuple[str, str]]) -> Iterator[BindingStats]:
    """Yield the bindings of queues to the default exchange, by the names of the queues."""
    for vhost, name in names:
        yield BindingStats(vhost, "", name, True, name, {}, b"")


def binding_rows(broker: Broker, vhost: str | None) -> Iterator[BindingStats]:
    """Yield the bindings of a vhost or of all vhosts, those to the default exchange first."""
    listed = [
        (v.name, list(exchange.bindings.values()))
        for v in vhosts_of(broker, vhost)
        for exchange in v.exchanges.by_name.values()
    ]
    yield from _default_rows(queue_names(broker, vhost))
    for name, bindings in listed:
        yield from _rows(name, bindings)


def bindings_of_queue(broker: Broker, vhost: str, name: str) -> Iterator[BindingStats]:
    """Return the bindings of an existing queue."""
    found = broker.vhosts[vhost]
    bindings = found.exchanges.bindings_to(found.queues.by_name[name])
    return chain(_default_rows(iter([(vhost, name)])), _rows(vhost, bindings))


def bindings_from(broker: Broker, vhost: str, name: str) -> Iterator[BindingStats]:
    """Return the bindings from an existing exchange."""
    if not name:
        return _default_rows(queue_names(broker, vhost))
    return _rows(vhost, list(broker.vhosts[vhost].exchanges.by_name[name].bindings.values()))


def bindings_to_exchange(broker: Broker, vhost: str, name: str) -> Iterator[BindingStats]:
    """Return the bindings to an existing exchange."""
    return _rows(vhost, list(broker.vhosts[vhost].exchanges.by_name[name].bound_from))


def bindings_between(
    broker: Broker, vhost: str, source: str, destination: str, to_queue: bool
) -> Iterator[BindingStats]:
    """Return the bindings between two existing ends."""
    found = broker.vhosts[vhost]
    if not source:
        return _default_rows(iter([(vhost, destination)] if to_queue else []))
    if to_queue:
        bindings = found.exchanges.bindings_to(found.queues.by_name[destination])
    else:
        bindings = list(found.exchanges.by_name[destination].bound_from)
    return _rows(vhost, [one for one in bindings if one.source.name == source])
