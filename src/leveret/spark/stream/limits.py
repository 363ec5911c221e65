"""How much a micro-batch takes of what is there: by messages, by bytes, and in whose turn.

Streams are given in the order in which they were served, longest ago first; the offsets of a query
keep that order (`offsets.py`).  A limit that is too small for all of them is for those in front, so
that none waits longer than it takes to serve all others once.

Pure arithmetic; what is there and how large it is comes from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

#: Messages of a stream whose sizes are looked at to guess those of the others.
SAMPLE_RECORDS: Final = 200


def shared(available: Mapping[str, int], most: int) -> dict[str, int]:
    """Return what each stream may give when all together may give `most`; the sum is exact.

    Each that has something gives one message at least, and of what is beyond that in proportion to
    what it has.  Where `most` is less than there are such streams, the first ones give one.
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
    # What the divisions left over goes to those whose shares they cut most.
    cut = sorted(waiting, key=lambda name: -(spare * (available[name] - 1) % beyond))
    for name in cut[:left]:
        shares[name] += 1
    return shares


def within_bytes(
    available: Mapping[str, int], mean_bytes: Mapping[str, float], most: int
) -> dict[str, int]:
    """Return what each stream may give when the bodies of all may have about `most` bytes.

    The first that has something gives one message, however large, and so does each other whose
    message still fits; what is left is shared in proportion to what these have.
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
