"""What systemd hears of a broker: that it is ready, that it lives, and that it stops."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.cli.serving.service_manager import ServiceManager
from support.brokers.broker_process import BrokerProcess

#: How long a datagram may take to come on a machine under load.
SECONDS_MAX = 60


class Manager:
    """A service manager's socket, and what came on it."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(SECONDS_MAX)

    def next(self) -> list[str]:
        """Return the lines of the next datagram."""
        return self._socket.recv(4096).decode().split("\n")

    def until(self, line: str) -> list[list[str]]:
        """Return the datagrams up to the first with that line."""
        found = [self.next()]
        while line not in found[-1]:
            found.append(self.next())
        return found

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Where the manager listens; a socket's path has at most 107 bytes."""
    return f"/tmp/leveret-{os.getpid()}-{abs(hash(tmp_path)):x}.notify"  # noqa: S108


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    """A manager that listens."""
    made = Manager(address)
    yield made
    made.close()
    Path(address).unlink()


def test_a_start_and_a_stop_are_told(tmp_path: Path, manager: Manager, address: str) -> None:
    broker = BrokerProcess(tmp_path / "data", wrapper=["env", f"NOTIFY_SOCKET={address}"])
    with broker:
        told = manager.until("READY=1")
        assert told[0] == ["STATUS=recovering the data directory"]
        assert told[-1] == ["READY=1", f"STATUS=listening on amqp://127.0.0.1:{broker.port}"]
        os.kill(broker.pid, signal.SIGTERM)
        assert manager.next() == ["STOPPING=1", "STATUS=stopping"]
        assert broker.wait(120) == 0


def test_a_broker_that_runs_says_so_as_often_as_it_is_asked(
    tmp_path: Path, manager: Manager, address: str
) -> None:
    asked = ["env", f"NOTIFY_SOCKET={address}", "WATCHDOG_USEC=30000"]
    with BrokerProcess(tmp_path / "data", wrapper=asked):
        manager.until("READY=1")
        assert [manager.next() for _ in range(3)] == [["WATCHDOG=1"]] * 3


def test_an_address_of_the_abstract_namespace_is_one() -> None:
    name = f"leveret-{os.getpid()}"
    listening = Manager(f"\0{name}")
    ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).ready("listening")
    assert listening.next() == ["READY=1", "STATUS=listening"]
    listening.close()


@pytest.mark.parametrize("place", ["", "/nonexistent/notify", "@nobody-listens-there"])
def test_nobody_who_listens_is_no_failure(place: str) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": place})
    manager.ready("listening")
    manager.stopping()
    assert manager.watchdog_seconds == 0


def test_a_manager_that_reads_no_more_holds_up_nobody(manager: Manager, address: str) -> None:
    teller = ServiceManager({"NOTIFY_SOCKET": address})
    for number in range(5000):
        teller.notify(f"STATUS={number}")
    assert manager.next() == ["STATUS=0"]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"WATCHDOG_USEC": "2000000"}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_a_watchdog_is_who_waits_for_this_process(given: dict[str, str], seconds: float) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "@x"} | given).watchdog_seconds == seconds


def test_nobody_is_pinged_who_did_not_ask() -> None:
    asyncio.run(ServiceManager({"NOTIFY_SOCKET": "@x"}).ping())
