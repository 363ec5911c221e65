"""A disk that fails under a real process, by `strace` (invariant I8).

After the failed call nothing more is confirmed, the process ends with a code that is not 0, and a
restart on a good disk finds all that was confirmed.
"""

from __future__ import annotations

import re
import shutil
import signal
import threading
import time
from contextlib import ExitStack, closing, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.brokers.brokers import need_own_broker
from support.http.http_api import Api
from support.wire import raw

#: A journal of 64 KiB, so that checkpoints run all the time: a message takes 3 KB of it.
SHORT = {"journal_bytes_max": "65536"}
BODY = bytes(3000)

WRITE = "pwritev,pwritev2"
RENAME = "rename,renameat,renameat2"
UNLINK = "unlink,unlinkat"

#: Which call fails, and when: the first syncs belong to the start, renames and removals to
#: checkpoints.
FAULTS = [
    "fdatasync:error=EIO:when=12",
    "fdatasync:error=EIO:when=40+",
    f"{WRITE}:error=EIO:when=15",
    f"{RENAME}:error=EIO:when=2",
    f"{UNLINK}:error=EIO:when=1",
]

#: At the entry of which call the process is killed: syncs of groups, chunks and snapshots, names of
#: snapshots, and the removal of what they make superfluous.
KILLED = [
    ("fdatasync", 12), ("fdatasync", 33), ("fdatasync", 34), (WRITE, 50), (RENAME, 2), (RENAME, 4),
    (UNLINK, 1), (UNLINK, 3), ("fsync", 12),
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests start processes of their own, under strace."""
    need_own_broker()
    # Python renames what it compiles: those calls would count.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")


def under_strace(directory: Path, fault: str) -> BrokerProcess:
    """A broker whose calls fail as `fault` says."""
    return BrokerProcess(directory / "data", settings=SHORT, wrapper=strace(directory, fault))


def strace(directory: Path, fault: str) -> list[str]:
    """The command that runs another one with a fault in it, as a child of the caller (-D).

    Not with --seccomp-bpf: there strace 6.1 forgets a signal from the second hit on.
    """
    calls = fault.partition(":")[0]
    log = str(directory / "strace")
    return [
        "strace",
        "-D",
        "-f",
        "-qq",
        "-ttt",
        "-o",
        log,
        "-e",
        f"trace={calls}",
        "-e",
        f"inject={fault}",
    ]


def opened(broker: BrokerProcess) -> raw.Connection:
    """A connection that confirms on channel 1, with the queue `q`."""
    connection = raw.connect(broker.uri)
    connection.open_channel(1)
    connection.declare(1, "q", durable=True)
    connection.call(1, "confirm.select")
    return connection


def confirmed_until_the_end(connection: raw.Connection) -> int:
    """Publish one by one, each after the last one's confirm; return how many were confirmed."""
    for number in range(1000):
        try:
            connection.send(raw.publish(1, "", "q", b"%d." % number + BODY, delivery_mode=2))
            connection.expect(1, "basic.ack")
        except (raw.Closed, ConnectionError):
            connection.socket.close()
            return number
    raise AssertionError("the disk never failed")


def found_after_a_restart(directory: Path) -> list[int]:
    """The numbers of the messages that a start on a good disk finds."""
    with BrokerProcess(directory / "data", settings=SHORT) as good:
        connection = opened(good)
        bodies = connection.drain(1, "q")
        connection.socket.close()
        assert good.terminate() == 0
    assert all(body.partition(b".")[2] == BODY for body in bodies)
    return [int(body.partition(b".")[0]) for body in bodies]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_disk_ends_the_broker_and_loses_nothing(tmp_path: Path, fault: str) -> None:
    with under_strace(tmp_path, fault) as broker:
        confirmed = confirmed_until_the_end(opened(broker))
        assert broker.wait(raw.SECONDS_MAX) == 1, broker.output
        assert "storage failed" in broker.output
    assert confirmed > 2
    # The one that was not confirmed may be there or not; nothing else may.
    assert found_after_a_restart(tmp_path) in (
        list(range(confirmed)),
        list(range(confirmed + 1)),
    )


@pytest.mark.parametrize(("calls", "place"), KILLED)
def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, calls: str, place: int) -> None:
    """SIGKILL at the entry of the n-th such call of the process."""
    with under_strace(tmp_path, f"{calls}:signal=KILL:when={place}") as broker:
        confirmed = confirmed_until_the_end(opened(broker))
        assert broker.wait(raw.SECONDS_MAX) == -signal.SIGKILL
    assert confirmed > 2
    assert found_after_a_restart(tmp_path) in (
        list(range(confirmed)),
        list(range(confirmed + 1)),
    )


def test_nothing_is_confirmed_while_or_after_a_sync_fails(tmp_path: Path) -> None:
    """Many publishes are in flight when the sync fails: none of them is confirmed any more."""
    confirmed = sent = 0
    with under_strace(tmp_path, "fdatasync:error=EIO:when=14+") as broker:
        connection = opened(broker)
        try:
            while True:
                batch = [b"%d." % number + BODY for number in range(sent, sent + 50)]
                connection.send(*[raw.publish(1, "", "q", b, delivery_mode=2) for b in batch])
                sent += len(batch)
                confirmed = connection.expect(1, "basic.ack").delivery_tag
        except (raw.Closed, ConnectionError):
            connection.socket.close()
        assert broker.wait(raw.SECONDS_MAX) == 1
    found = found_after_a_restart(tmp_path)
    assert found == list(range(len(found)))
    assert 0 < confirmed <= len(found) <= sent


def test_the_end_comes_within_a_second_and_says_what_failed(tmp_path: Path) -> None:
    """Whoever is connected then: publishers, consumers that do not read, requests that wait."""
    with under_strace(tmp_path, "fdatasync:error=EIO:when=60+") as broker, ExitStack() as stack:
        for _ in range(20):
            consumer = stack.enter_context(opened(broker))
            consumer.call(1, "basic.consume", queue="q", no_ack=True)
        asking = threading.Thread(target=ask_until_the_end, args=(broker.data_dir,))
        asking.start()
        confirmed_until_the_end(stack.enter_context(opened(broker)))
        assert broker.wait(raw.SECONDS_MAX) == 1
        took = time.time() - failed_at(tmp_path)
        asking.join()
        assert re.search(r"storage failed, the broker stops .*sync \S+/\d+\.\w+: ", broker.output)
    assert took < 1


def ask_until_the_end(data_dir: Path) -> None:
    """Change something durable over HTTP again and again; the last answer never comes."""
    with closing(Api(data_dir / "management.sock")) as api, suppress(OSError, HTTPException):
        while True:
            api.ask("PUT", "/api/vhosts/another")
            api.ask("DELETE", "/api/vhosts/another")


def failed_at(directory: Path) -> float:
    """When the first call failed, by strace's log, in seconds since the epoch."""
    lines = (directory / "strace").read_text().splitlines()
    return float(next(line for line in lines if "INJECTED" in line).split()[1])


def test_a_disk_that_fails_at_the_start_ends_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.terminate() == 0
    broken = under_strace(tmp_path, "fdatasync:error=EIO:when=1+")
    with pytest.raises(BrokerProcessError, match="the broker cannot start"):
        broken.start()
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.terminate() == 0
