"""Format numbers for people: sizes, times, counts, rates."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """Return a number of bytes with a unit, such as `12.3 MiB`."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:,.{0 if unit == 0 else 1}f} {_UNITS[unit]}"


def span(milliseconds: float) -> str:
    """Return a time in its two largest units, such as `3 d 4 h`."""
    seconds = int(milliseconds // 1000)
    parts = [seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60, seconds % 60]
    named = [f"{part} {unit}" for part, unit in zip(parts, ("d", "h", "min", "s"), strict=True)]
    first = next((place for place, part in enumerate(parts) if part), 3)
    return " ".join(named[first : first + 2])


def count(value: float) -> str:
    """Return a count with thousands separators."""
    return f"{int(value):,}"


def counted(value: float, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is 1."""
    return f"{count(value)} {noun}" if int(value) == 1 else f"{count(value)} {noun}s"


def per_second(value: float) -> str:
    """Return a rate, with one decimal if it is less than 10."""
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"
