"""The share of each stream in a micro-batch, limited by messages and bytes.

The functions receive streams ordered by when they were last served, longest ago first; the offsets
of a query preserve that order (`offsets.py`).  If a limit is too small for all streams, the first
ones are served.  So no stream waits longer than it takes to serve all others once.

This module does only arithmetic: the sizes of the streams are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def shared(available: Mapping[str, int], most: int) -> dict[str, int]:
    """Divide `most` messages among the streams; the shares add up to exactly that number.

    Each stream with messages gets at least one, and a part of the rest in proportion to its
    messages.  If `most` is less than the number of such streams, only the first ones get one.  If
    fewer than `most` messages are available, all of them are returned.
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
    # The remaining messages go to the streams whose shares were rounded down most.
    cut = sorted(waiting, key=lambda name: -(spare * (available[name] - 1) % beyond))
    for name in cut[:left]:
        shares[name] += 1
    return shares


def within_bytes(
    available: Mapping[str, int], mean_bytes: Mapping[str, float], most: int
) -> dict[str, int]:
    """Return the share of each stream, in messages, if all bodies may total about `most` bytes.

    The first stream with messages gets one message of any size, and each other stream gets one if
    it still fits.  The rest is shared in proportion to the remaining messages.
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
    """Return the order of service for the next batch, with the streams just served at the end."""
    return sorted(order, key=lambda name: given.get(name, 0) > 0)
