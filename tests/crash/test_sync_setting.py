"""The setting `sync` does what its name says: seen in the calls that a real process makes."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.wire import raw

MESSAGES = 20
#: Longer than a test takes.
LONG_MS = "60000"

#: A call on a file of the journal, by its name and the file's (strace -y).
CALL = re.compile(r"(fdatasync|pwritev2?|pwrite64)\(\d+<[^>]*/journal/\d+\.jnl>")


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own, under strace."""
    need_own_broker()
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")


def traced(directory: Path, settings: dict[str, str]) -> BrokerProcess:
    """A broker whose calls are written down."""
    log = str(directory / "strace")
    calls = "trace=fdatasync,pwritev,pwritev2,pwrite64"
    command = ["strace", "-D", "-f", "-y", "-qq", "-o", log, "-e", calls]
    return BrokerProcess(directory / "data", settings=settings, wrapper=command)


def journal_calls(directory: Path) -> str:
    """The calls on the journal in order: `w` for a write, `s` for a sync."""
    found = CALL.finditer((directory / "strace").read_text())
    return "".join("s" if call[1] == "fdatasync" else "w" for call in found)


def publish_confirmed(broker: BrokerProcess, count: int) -> None:
    """Publish one by one, each after the last one's confirm."""
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        connection.declare(1, "q", durable=True)
        connection.call(1, "confirm.select")
        for number in range(count):
            connection.send(raw.publish(1, "", "q", b"%d" % number, delivery_mode=2))
            connection.expect(1, "basic.ack")


def found(broker: BrokerProcess) -> int:
    """How many messages are there."""
    with raw.connect(broker.uri) as connection:
        connection.open_channel(1)
        return len(connection.drain(1, "q"))


def test_always_syncs_before_each_confirm(tmp_path: Path) -> None:
    with traced(tmp_path, {}) as broker:
        before = journal_calls(tmp_path).count("s")
        publish_confirmed(broker, MESSAGES)
        assert journal_calls(tmp_path).count("s") >= before + MESSAGES
        assert broker.terminate() == 0


@pytest.mark.parametrize(
    "settings",
    [{"sync": "never"}, {"sync": "interval", "sync_interval_ms": LONG_MS}],
    ids=["never", "interval"],
)
def test_the_others_confirm_without_a_sync_and_sync_at_a_stop(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    with traced(tmp_path, settings) as broker:
        publish_confirmed(broker, MESSAGES)
        calls = journal_calls(tmp_path)
        assert calls.count("w") >= MESSAGES
        assert "s" not in calls
        assert broker.terminate() == 0
        assert re.fullmatch("w+s+", journal_calls(tmp_path))


@pytest.mark.parametrize("sync", ["never", "interval"])
def test_a_kill_without_a_power_cut_loses_nothing(tmp_path: Path, sync: str) -> None:
    with BrokerProcess(tmp_path, settings={"sync": sync, "sync_interval_ms": LONG_MS}) as broker:
        publish_confirmed(broker, MESSAGES)
        broker.crash()
        assert found(broker) == MESSAGES


def test_interval_syncs_by_itself(tmp_path: Path) -> None:
    with traced(tmp_path, {"sync": "interval", "sync_interval_ms": "20"}) as broker:
        publish_confirmed(broker, 1)
        deadline = time.monotonic() + raw.SECONDS_MAX
        while not journal_calls(tmp_path).endswith("s"):
            assert time.monotonic() < deadline
            broker.expect_line("closed AMQP connection")
        assert broker.terminate() == 0
