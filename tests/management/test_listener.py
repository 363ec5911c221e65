"""The listener of the HTTP API: private, free until it is used, and gone with its broker."""

from __future__ import annotations

import stat
from pathlib import Path

import psutil
import pytest

from leveret.wire.buffer import COMPILED
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

#: What an idle broker may take of memory.
IDLE_BYTES_MAX = 70 * 1024 * 1024


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data directory of a broker of the test's own."""
    return tmp_path / "data"


def ask(data_dir: Path) -> Api:
    """Return a connection to the API after its first answer."""
    api = Api(data_dir / "management.sock")
    status, body, _ = api.answer("/api/queues")
    assert (status, body) == (200, [])
    return api


def loaded(broker: BrokerProcess) -> bool:
    """Tell whether a broker's process has the web framework loaded, by its mapped libraries."""
    return any("aiohttp" in mapped.path for mapped in psutil.Process(broker.pid).memory_maps())


def test_nothing_is_loaded_before_it_is_asked(data_dir: Path) -> None:
    with BrokerProcess(data_dir) as broker:
        assert not loaded(broker)
        if COMPILED:
            assert psutil.Process(broker.pid).memory_info().rss <= IDLE_BYTES_MAX
        ask(data_dir).close()
        assert loaded(broker)


def test_its_socket_is_its_owners_alone_and_goes_with_it(data_dir: Path) -> None:
    with BrokerProcess(data_dir) as broker:
        mode = (data_dir / "management.sock").stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        assert broker.terminate() == 0
    assert not (data_dir / "management.sock").exists()


def test_a_broker_stops_while_a_client_is_connected(data_dir: Path) -> None:
    with BrokerProcess(data_dir) as broker:
        api = ask(data_dir)
        assert broker.terminate() == 0
        api.close()


def test_a_killed_brokers_socket_is_replaced(data_dir: Path) -> None:
    with BrokerProcess(data_dir) as broker:
        broker.crash()
        ask(data_dir).close()


def test_a_broker_that_cannot_have_its_socket_works_without(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "management.sock").write_text("in the way")
    with BrokerProcess(data_dir) as broker:
        assert "AMQP continues" in broker.output
        assert broker.terminate() == 0
    assert (data_dir / "management.sock").read_text() == "in the way"
