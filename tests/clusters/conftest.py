"""Fixtures of the tests of clusters: a broker to talk to, and names that no other test has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers.brokers import Broker, running_broker, unique


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker: LEVERET_TEST_URI, or a process of our own."""
    with running_broker(tmp_path_factory.mktemp("clusters")) as running:
        yield running


@pytest.fixture
def broker_uri(broker: Broker) -> str:
    """The URI of the broker."""
    return broker.uri


@pytest.fixture
def topic() -> str:
    """A topic that no other test has."""
    return unique("topic")
