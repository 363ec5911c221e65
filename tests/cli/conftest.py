"""A broker for the commands, and the commands as a user runs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.client.blocking import connect
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import Command


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker."""
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


@pytest.fixture
def leveret(broker: BrokerProcess) -> Command:
    """Runs a command against the broker: `leveret("get", "q")`."""
    return Command(broker)


@pytest.fixture
def queue(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    name = f"q-{request.node.name}"
    with connect(broker.uri) as connection:
        connection.channel().queue_declare(name, durable=True)
    return name
