"""Fields of definitions as records hold them, whatever damage or an older release left in them."""

from __future__ import annotations


def text(definition: dict[str, object], field: str) -> str:
    """Return a field as text, empty where it is not there."""
    value = definition.get(field, "")
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else str(value)


def raw(definition: dict[str, object], field: str) -> bytes:
    """Return a field as bytes, empty where it is not there."""
    value = definition.get(field)
    return value if isinstance(value, bytes) else text(definition, field).encode()


def number(definition: dict[str, object], field: str) -> int:
    """Return a field that is a number, 0 where there is none."""
    value = definition.get(field, 0)
    return value if isinstance(value, int) else 0


def table(definition: dict[str, object], field: str) -> dict[str, object]:
    """Return a field that is a table, an empty one where there is none."""
    value = definition.get(field)
    return value if isinstance(value, dict) else {}
