"""A broker whose HTTP API is asked over its Unix socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.client.blocking import Channel, Connection, connect
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker."""
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


@pytest.fixture
def api(broker: BrokerProcess) -> Iterator[Api]:
    """A connection to its HTTP API."""
    connection = Api(broker.data_dir / "management.sock")
    yield connection
    connection.close()


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    """A client's connection."""
    with connect(broker.uri, connection_name="tester") as connection:
        yield connection


@pytest.fixture
def channel(connection: Connection) -> Channel:
    """A client's channel."""
    return connection.channel()
