"""Shared fixtures of the tests of the sources, which are read only once."""

from __future__ import annotations

import pytest

import weight


@pytest.fixture(scope="session")
def sources() -> weight.Sources:
    return weight.read(weight.SRC)
