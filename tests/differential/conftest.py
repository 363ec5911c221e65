"""Fixtures of the differential test: both brokers, one of each for all scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from differential import pair
from differential.stage import Host


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Debian's RabbitMQ."""
    with pair.rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as host:
        yield host


@pytest.fixture(scope="session")
def leveret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Leveret."""
    with pair.leveret(tmp_path_factory.mktemp("leveret")) as host:
        yield host
