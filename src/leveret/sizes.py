"""Parse sizes such as `512 MiB`, and format counts such as `2 messages`."""

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
    """Return a size in bytes; kB, MB, GB, TB are powers of 1000, KiB, MiB, GiB, TiB of 1024.

    Raises: ValueError.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("a size must be a number of bytes, or have a unit such as 512MiB")
    return int(float(found[1]) * _UNITS[(found[2] or "b").lower()])


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return `1 noun` or `2 nouns`; by default, the plural is `noun` with an s."""
    return f"{count} {noun if count == 1 else nouns or f'{noun}s'}"
