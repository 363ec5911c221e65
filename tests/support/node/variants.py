"""Variants of a test: `make check` runs only a few of them, `make test` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few_of(values: Iterable[Any], count: int) -> list[Any]:
    """Return the values for `parametrize`; all but the first `count` are marked `thorough`."""
    return [
        value if place < count else pytest.param(value, marks=pytest.mark.thorough)
        for place, value in enumerate(values)
    ]
