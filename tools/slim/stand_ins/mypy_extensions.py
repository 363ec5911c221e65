"""The names of `mypy_extensions` that Leveret uses, as they are in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

i16 = i32 = i64 = u8 = int


def mypyc_attr(**_attributes: bool) -> Callable[[_T], _T]:
    """Return a decorator that changes nothing."""
    return _same


def trait(cls: _T) -> _T:
    """Return a class as it is."""
    return cls


def _same(decorated: _T) -> _T:
    return decorated
