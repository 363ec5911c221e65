"""How much a micro-batch takes of what is there: by messages, by bytes, and when it waits for more.

Pure arithmetic; what is there and how large it is comes from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Messages of a stream whose sizes are looked at to guess those of the others.
SAMPLE_RECORDS: Final = 200


def shared(available: Mapping[str, int], most: int) -> dict[str, int]:
    """Return what each stream may give when all together may give `most`.

    Each gives in proportion to what it has, so that none falls behind for ever; the sum is exact.
    """
    total = sum(available.values())
    if total <= most:
        return dict(available)
    shares = {name: most * count // total for name, count in available.items()}
    left = most - sum(shares.values())
    for name, count in available.items():
        if left > 0 and shares[name] < count:
            shares[name] += 1
            left -= 1
    return shares


def within_bytes(
    available: Mapping[str, int], mean_bytes: Mapping[str, float], most: int
) -> dict[str, int]:
    """Return what each stream may give when the bodies of all may have about `most` bytes.

    One message at least is given, however large.
    """
    total = sum(count * mean_bytes[name] for name, count in available.items())
    if total <= most:
        return dict(available)
    return shared(available, max(1, int(sum(available.values()) * most / total)))
