"""Human-readable sizes and counts: `512 MiB`, `1.5GB`, `1 message`, `2 messages`."""

from __future__ import annotations

import re
from typing import Final

_SIZE: Final = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s*([kmgt]i?b|b)?", re.IGNORECASE)
_UNITS: Final = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}


def read_size(text: str) -> int:
    """Parse a size into bytes: kB, MB, GB and TB are powers of 1000, KiB … of 1024.

    Raises: ValueError.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("a size must be a number of bytes, or have a unit such as 512MiB")
    return int(float(found[1]) * _UNITS[(found[2] or "b").lower()])


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return `1 noun` or `2 nouns`; without `nouns`, the plural is formed with an s."""
    return f"{count} {noun if count == 1 else nouns or f'{noun}s'}"
