"""A disk that fails under a real process, by `strace` (invariant I8).

After the failed call nothing more is confirmed, the process ends with a code that is not 0, and a
restart on a good disk finds all that was confirmed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import raw
from broker_process import BrokerProcess
from brokers import need_own_broker

#: Which call fails, and when: the first syncs belong to the start.
FAULTS = [
    "fdatasync:error=EIO:when=12",
    "fdatasync:error=EIO:when=25",
    "fdatasync:error=EIO:when=40+",
    "pwritev,pwritev2:error=EIO:when=15",
    "pwritev,pwritev2:error=ENOSPC:when=30+",
]


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own, under strace."""
    need_own_broker()
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")


def under_strace(directory: Path, fault: str) -> BrokerProcess:
    """A broker whose calls fail as `fault` says."""
    return BrokerProcess(directory / "data", wrapper=strace(directory, fault))


def strace(directory: Path, fault: str) -> list[str]:
    """The command that runs another one with a fault in it, as a child of the caller (-D).

    Not with --seccomp-bpf: there strace 6.1 forgets a signal from the second hit on.
    """
    call = fault.partition(":")[0]
    log = str(directory / "strace")
    return ["strace", "-D", "-f", "-qq", "-o", log, "-e", f"trace={call}", "-e", f"inject={fault}"]


def confirmed_until_the_end(connection: raw.Connection) -> Iterator[tuple[int, bool]]:
    """Publish one by one, each after the last one's confirm; yield each number and its fate."""
    for number in range(500):
        try:
            connection.send(raw.publish(1, "", "q", b"%d" % number, delivery_mode=2))
            connection.expect(1, "basic.ack")
        except (raw.Closed, ConnectionError):
            yield number, False
            return
        yield number, True
    raise AssertionError("the disk never failed")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_disk_ends_the_broker_and_loses_nothing(tmp_path: Path, fault: str) -> None:
    broker = under_strace(tmp_path, fault)
    with broker:
        connection = raw.connect(broker.uri)
        connection.open_channel(1)
        connection.declare(1, "q", durable=True)
        connection.call(1, "confirm.select")
        fates = dict(confirmed_until_the_end(connection))
        code = broker.wait(raw.SECONDS_MAX)
        assert code == 1, broker.output
        assert "storage failed" in broker.output
        connection.socket.close()
    kept = [number for number, confirmed in fates.items() if confirmed]
    assert len(kept) > 2
    with BrokerProcess(tmp_path / "data") as good:
        connection = raw.connect(good.uri)
        connection.open_channel(1)
        found = [int(body) for body in connection.drain(1, "q")]
        connection.socket.close()
        # The one that was not confirmed may be there or not; nothing else may.
        assert found in (kept, [*kept, len(kept)])
        assert good.terminate() == 0


def test_nothing_is_confirmed_while_or_after_a_sync_fails(tmp_path: Path) -> None:
    """Many publishes are in flight when the sync fails: none of them is confirmed any more."""
    broker = under_strace(tmp_path, "fdatasync:error=EIO:when=14+")
    with broker:
        connection = raw.connect(broker.uri)
        connection.open_channel(1)
        connection.declare(1, "q", durable=True)
        connection.call(1, "confirm.select")
        confirmed = sent = 0
        try:
            while True:
                batch = [b"%d" % number for number in range(sent, sent + 200)]
                connection.send(*[raw.publish(1, "", "q", b, delivery_mode=2) for b in batch])
                sent += len(batch)
                confirmed = connection.expect(1, "basic.ack").delivery_tag
        except (raw.Closed, ConnectionError):
            connection.socket.close()
        assert broker.wait(raw.SECONDS_MAX) == 1
    assert 0 < confirmed < sent
    with BrokerProcess(tmp_path / "data") as good:
        connection = raw.connect(good.uri)
        connection.open_channel(1)
        found = [int(body) for body in connection.drain(1, "q")]
        connection.socket.close()
    assert found == list(range(len(found)))
    assert confirmed <= len(found) <= sent


def test_a_disk_that_fails_at_the_start_ends_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.terminate() == 0
    broken = under_strace(tmp_path, "fdatasync:error=EIO:when=1+")
    with pytest.raises(Exception, match="the broker cannot start"):
        broken.start()
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.terminate() == 0


def test_a_kill_at_a_sync_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL on the entry of the n-th sync: what was written and not synced, and not confirmed."""
    for place in (12, 17, 23):
        directory = tmp_path / str(place)
        directory.mkdir()
        broker = under_strace(directory, f"fdatasync:signal=KILL:when={place}")
        with broker:
            connection = raw.connect(broker.uri)
            connection.open_channel(1)
            connection.declare(1, "q", durable=True)
            connection.call(1, "confirm.select")
            fates = dict(confirmed_until_the_end(connection))
            connection.socket.close()
            assert broker.wait(raw.SECONDS_MAX) != 0
        kept = [number for number, confirmed in fates.items() if confirmed]
        with BrokerProcess(directory / "data") as good:
            connection = raw.connect(good.uri)
            connection.open_channel(1)
            found = [int(body) for body in connection.drain(1, "q")]
            connection.socket.close()
        assert found in (kept, [*kept, len(kept)])
