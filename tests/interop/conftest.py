"""Fixtures of the interop tests: one broker for all of them and names of one's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers.brokers import Broker, running_broker, unique


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker under test.  A refused login ends after 0.1 s, not after some seconds."""
    settings = {"login_failure_delay_ms": "100"}
    with running_broker(tmp_path_factory.mktemp("interop"), settings) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return unique("i")
