"""The share of each stream in a micro-batch: by messages, by bytes, and in which order.

Streams are given in the order in which they were served, longest ago first; the offsets of a query
keep that order (`offsets.py`).  A limit that is too small for all of them applies to the first
ones, so that none waits longer than it takes to serve all others once.

This module is pure arithmetic; the sizes of the streams are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def shared(available: Mapping[str, int], most: int) -> dict[str, int]:
    """Return the share of each stream if all together may give `most`; the sum is exact.

    Each stream with messages gives one at least, and of the rest in proportion to its messages.  If
    `most` is less than the number of such streams, the first ones give one.
    """
    total = sum(available.values())
    if total <= most:
        return dict(available)
    waiting = [name for name, count in available.items() if count > 0]
    shares = dict.fromkeys(available, 0) | dict.fromkeys(waiting[:most], 1)
    spare = most - len(waiting)
    if spare <= 0:
        return shares
    beyond = total - len(waiting)
    for name in waiting:
        shares[name] += spare * (available[name] - 1) // beyond
    left = most - sum(shares.values())
    # The remainders of the divisions go to the streams whose shares were rounded down most.
    cut = sorted(waiting, key=lambda name: -(spare * (available[name] - 1) % beyond))
    for name in cut[:left]:
        shares[name] += 1
    return shares


def within_bytes(
    available: Mapping[str, int], mean_bytes: Mapping[str, float], most: int
) -> dict[str, int]:
    """Return the share of each stream if the bodies of all may have about `most` bytes.

    The first stream with messages gives one, however large, and so does each other whose message
    still fits; the rest is shared in proportion to the remaining messages.
    """
    if sum(count * mean_bytes[name] for name, count in available.items()) <= most:
        return dict(available)
    shares = dict.fromkeys(available, 0)
    spent = 0.0
    for name, count in available.items():
        size = mean_bytes[name]
        if count > 0 and (spent + size <= most or not any(shares.values())):
            shares[name] = 1
            spent += size
    beyond = {name: available[name] - 1 for name, share in shares.items() if share > 0}
    beyond_bytes = sum(count * mean_bytes[name] for name, count in beyond.items())
    part = min(1.0, max(0.0, most - spent) / beyond_bytes) if beyond_bytes > 0 else 1.0
    for name, count in beyond.items():
        shares[name] += min(count, int(count * part))
    return shares


def in_turn(order: Iterable[str], given: Mapping[str, int]) -> list[str]:
    """Return streams in the order of service after a batch: those that it served come last."""
    return sorted(order, key=lambda name: given.get(name, 0) > 0)
