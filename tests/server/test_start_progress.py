"""A long start says how far it is; a quick one says nothing."""

from __future__ import annotations

from pathlib import Path

from leveret.limits import SLICE_MESSAGES
from leveret.server.start_progress import LINE_MS, StartProgress
from leveret.store.disks.recording import RecordingDisk
from leveret.store.recovery.recovery import StoreRecovery
from support.brokers.broker_process import BrokerProcess
from support.store.store_model import NOW, UUID, State, Store, message


class Machine:
    """A clock that moves on by `step_ms` at each look, and what was said."""

    def __init__(self, step_ms: int) -> None:
        self.now_ms = 0
        self.step_ms = step_ms
        self.said: list[tuple[str, dict[str, object]]] = []

    def monotonic_ms(self) -> int:
        self.now_ms += self.step_ms
        return self.now_ms

    def say(self, what: str, **figures: object) -> None:
        self.said.append((what, figures))


def full_disk() -> RecordingDisk:
    """A disk with a snapshot and a journal of several files."""
    store = Store(RecordingDisk())
    store.define_queue(1, "one")
    store.sync()
    store.checkpoint()
    store.journal.file_bytes_max = 100_000
    for _ in range(6):
        for number in range(SLICE_MESSAGES):
            store.publish(message(b"%d" % number), 1)
        store.sync()
    assert isinstance(store.disk, RecordingDisk)
    return RecordingDisk(store.disk.image())


def recovered(step_ms: int) -> Machine:
    """Recover on a machine where each step takes so long."""
    machine, disk = Machine(step_ms), full_disk()
    recovery = StoreRecovery(disk, State(), UUID, NOW)
    progress = StartProgress(recovery, disk, machine.monotonic_ms, machine.say)
    for _ in recovery.run():
        progress.look()
    progress.end()
    return machine


def test_a_long_start_says_how_far_it_is() -> None:
    said = recovered(LINE_MS).said
    lines = [figures for what, figures in said if what == "recovering"]
    assert len(lines) >= 6
    percents = [int(str(figures["percent"])) for figures in lines]
    assert percents == sorted(percents)
    assert 0 < percents[0] < percents[-1] <= 100
    records = [int(str(figures["records"])) for figures in lines]
    assert records == sorted(records)
    left = [int(str(figures["seconds_left"])) for figures in lines if "seconds_left" in figures]
    assert left
    assert max(left) < 60
    assert said[-1][0].endswith("rebuilding the queues")
    assert int(str(said[-1][1]["records"])) >= 6 * SLICE_MESSAGES


def test_it_says_a_line_every_two_seconds() -> None:
    said = recovered(LINE_MS // 2).said
    assert 0 < len(said) < len(recovered(LINE_MS).said)


def test_a_quick_start_says_nothing(tmp_path: Path) -> None:
    assert recovered(1).said == []
    with BrokerProcess(tmp_path / "data") as broker:
        assert "recovering" not in broker.restart().output
