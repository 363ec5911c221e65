"""An exception that nobody expected stops a real broker; a start finds all that it confirmed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from leveret.app.ground import INTERNAL_ERROR
from support.brokers.broken_broker import BUG, broken
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.brokers.brokers import need_own_broker
from support.http.http_api import Api
from support.wire import raw

#: A journal of 64 KiB, so that checkpoints run all the time: a message takes 3 KB of it.
SHORT = {"journal_bytes_max": "65536", "journal_file_bytes": "65536"}
BODY = bytes(3000)

#: More messages than any fault here lets through.
MESSAGES = 2000

FAULTS: dict[str, tuple[object, ...]] = {
    "the first step of a checkpoint": ("step", 1),
    "a step among the messages": ("step", 4),
    "a step of a later checkpoint": ("step", 30),
    "a definition that cannot be written": ("definition", 1),
    "the same in a later checkpoint": ("definition", 40),
    "writing a group": ("disk", 30, "append", "journal"),
    "syncing a group": ("disk", 30, "sync", "journal"),
    "writing chunks": ("disk", 2, "append", "segments"),
    "writing a snapshot": ("disk", 2, "append", "state"),
    "completing a snapshot": ("disk", 2, "pwrite", "state"),
    "naming a snapshot": ("disk", 2, "rename", "state"),
    "removing a journal file": ("disk", 1, "unlink", "journal"),
    "a look at the clock": ("clock", 100),
    "another look at the clock": ("clock", 101),
    "a look at the room on the disk": ("room", 2),
    "a timer": ("timer", 300),
}


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


def confirmed_until_the_end(uri: str) -> int:
    """Publish one by one, each after the last one's confirm; return how many were confirmed."""
    with raw.connect(uri) as connection:
        connection.open_channel(1)
        connection.declare(1, "q", durable=True)
        connection.call(1, "confirm.select")
        number = 0
        try:
            while number < MESSAGES:
                connection.send(raw.publish(1, "", "q", b"%d." % number + BODY, delivery_mode=2))
                connection.expect(1, "basic.ack")
                number += 1
        except (raw.Closed, ConnectionError):
            return number
    raise AssertionError("nothing stopped the broker")


def test_what_nobody_expected_in_the_recovery_ends_the_start(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SHORT) as good:
        with raw.connect(good.uri) as connection:
            connection.open_channel(1)
            connection.declare(1, "q", durable=True)
        assert good.terminate() == 0
    broker = broken(tmp_path / "data", SHORT, "recovery", 3)
    with pytest.raises(BrokerProcessError, match="internal error, the broker stops"):
        broker.start()
    assert broker.wait(raw.SECONDS_MAX) == INTERNAL_ERROR
    with BrokerProcess(tmp_path / "data", settings=SHORT) as good:
        with raw.connect(good.uri) as connection:
            connection.open_channel(1)
            connection.call(1, "queue.declare", queue="q", passive=True)
        assert good.terminate() == 0


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker in which some parts are broken, and a durable queue `q` with a message."""
    with broken(tmp_path / "data", SHORT, "parts", 1) as broker:
        with raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            connection.declare(1, "q", durable=True)
            connection.call(1, "confirm.select")
            connection.send(raw.publish(1, "", "q", b"kept", delivery_mode=2))
            connection.expect(1, "basic.ack")
        yield broker


def test_a_request_that_changed_nothing_ends_with_its_client(parts: BrokerProcess) -> None:
    with raw.connect(parts.uri) as connection, raw.connect(parts.uri) as neighbour:
        neighbour.open_channel(1)
        connection.open_channel(1)
        connection.send(raw.method(1, "queue.declare", queue="broken", passive=True))
        assert connection.expect(0, "connection.close").code == 541
        with closing(Api(parts.data_dir / "management.sock")) as api:
            status, body = api.ask("GET", "/api/queues/%2F/broken")
            assert (status, body) == (500, {"error": "internal_error", "reason": "see the log"})
            assert api.ask("GET", "/api/users")[0] == 200
        neighbour.call(1, "queue.declare", queue="q", passive=True)
        assert neighbour.drain(1, "q") == [b"kept"]
    assert "ZeroDivisionError at " in parts.output
    assert parts.terminate() == 0


def publish_to_both(broker: BrokerProcess) -> None:
    """Publish a message that one queue takes before the broken one does not."""
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        connection.call(1, "queue.unbind", queue="broken", exchange="amq.fanout")
        connection.call(1, "queue.bind", queue="q", exchange="amq.fanout")
        connection.call(1, "queue.bind", queue="broken", exchange="amq.fanout")
        connection.send(raw.publish(1, "amq.fanout", "", b"half", delivery_mode=2))
        with pytest.raises((raw.Closed, ConnectionError)):
            connection.expect(1, "basic.ack")


def put_permission(broker: BrokerProcess) -> None:
    """Change over HTTP what `guest` may do."""
    with closing(Api(broker.data_dir / "management.sock")) as api:
        body = {"configure": "", "write": "", "read": ".*"}
        with suppress(OSError, HTTPException):
            status, _ = api.ask("PUT", "/api/permissions/%2F/guest", body)
            assert status == 500


@pytest.mark.parametrize("change", [publish_to_both, put_permission])
def test_a_request_that_changed_something_stops_the_broker(
    parts: BrokerProcess, change: Callable[[BrokerProcess], None]
) -> None:
    change(parts)
    assert parts.wait(raw.SECONDS_MAX) == INTERNAL_ERROR, parts.output
    assert "internal error, the broker stops" in parts.output
    with BrokerProcess(parts.data_dir, settings=SHORT) as good:
        with raw.connect(good.uri) as connection:
            connection.open_channel(1)
            assert connection.drain(1, "q")[:1] == [b"kept"]
        assert good.terminate() == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_what_nobody_expected_stops_the_broker_and_loses_nothing(
    tmp_path: Path, fault: str
) -> None:
    with broken(tmp_path / "data", SHORT, *FAULTS[fault]) as broker:
        confirmed = confirmed_until_the_end(broker.uri)
        assert broker.wait(raw.SECONDS_MAX) == INTERNAL_ERROR, broker.output
        assert "internal error, the broker stops" in broker.output
        assert "Traceback" in broker.output
        said = "cannot be written" if "definition" in FAULTS[fault] else BUG
        assert said in broker.output
    with BrokerProcess(tmp_path / "data", settings=SHORT) as good:
        with raw.connect(good.uri) as connection:
            connection.open_channel(1)
            # A durable queue, and one that is there.
            connection.call(1, "queue.declare", queue="q", passive=True)
            numbers = [int(body.partition(b".")[0]) for body in connection.drain(1, "q")]
        assert good.terminate() == 0
    assert numbers in (list(range(confirmed)), list(range(confirmed + 1)))
