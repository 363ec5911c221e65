"""An exception that nobody expected stops a real broker; a start finds all that it confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest

import raw
from broken_broker import BUG, broken
from broker_process import BrokerProcess
from brokers import need_own_broker
from leveret.app import INTERNAL_ERROR

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
