"""Copies of the parts of a cluster, of which a search makes many."""

from __future__ import annotations

from typing import TypeVar

Part = TypeVar("Part")


def copied(part: Part) -> Part:
    """Return a shallow copy: several times faster than `copy.copy` and `dataclasses.replace`."""
    kind = type(part)
    copy = object.__new__(kind)
    copy.__dict__.update(part.__dict__)
    return copy
