"""A disk that fills under a real process: a small tmpfs, filled by its publishers and by others.

Publishers are blocked before the last byte, consumers go on, nothing is confirmed that is not on
the disk, and when there is room again all goes on without a restart.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.brokers.brokers import need_own_broker
from support.http.http_api import Api
from support.wire import raw

MIB = 1024 * 1024
DISK_BYTES = 48 * MIB
RESERVE = 6 * MIB
BALLAST = 2 * MIB
SETTINGS = {
    "disk_free_bytes_min": str(RESERVE),
    "ballast_bytes": str(BALLAST),
    "journal_bytes_max": str(8 * MIB),
    "journal_file_bytes": str(2 * MIB),
}
#: Opens a connection to the broker.
Opened = Callable[[], raw.Connection]

PADDING = bytes(32 * 1024)
#: Far more than the disk holds.
PUBLISHES_MAX = 4000
#: How soon all goes on when there is room: a second on a quiet machine.
RESUME_SECONDS_MAX = 60.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own in memory."""
    need_own_broker()
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    place = tmp_path / "disk"
    place.mkdir()
    size = f"size={DISK_BYTES}"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", place], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine mounts no tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def broker(disk: Path, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """A broker on the small disk, with its ballast made."""
    settings = SETTINGS | getattr(request, "param", {})
    with BrokerProcess(disk / "data", settings=settings) as running:
        running.expect_line("the ballast is created")
        yield running


@pytest.fixture
def opened(broker: BrokerProcess) -> Iterator[Opened]:
    """Opens connections that are closed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(connect(broker))


def free(disk: Path) -> int:
    """The bytes that the disk has left."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def fill(disk: Path) -> None:
    """Fill the disk to its last byte, as something else than the broker."""
    with (disk / "filler").open("ab", buffering=0) as file:
        for size in (MIB, 4096):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    assert free(disk) == 0


def connect(broker: BrokerProcess) -> raw.Connection:
    """A connection that confirms on channel 1, with the queue `q`."""
    connection = raw.connect(broker.uri)
    connection.open_channel(1)
    connection.declare(1, "q", durable=True)
    connection.call(1, "confirm.select")
    return connection


def send(connection: raw.Connection, number: int) -> None:
    """Publish a message that is told by its number."""
    connection.send(raw.publish(1, "", "q", b"%d." % number + PADDING, delivery_mode=2))


def publish_until_full(connection: raw.Connection, disk: Path) -> int:
    """Publish one by one, each after the last one's confirm; return how many were confirmed.

    It is blocked more than once: while there is room, checkpoints give back what the journal takes.
    """
    for number in range(PUBLISHES_MAX):
        send(connection, number)
        while (got := connection.next_method()).name != "basic.ack":
            if got.name == "connection.blocked":
                assert got.reason == "low on disk"
                if free(disk) < RESERVE * 3 // 2:
                    while got.name != "basic.ack":
                        got = connection.next_method()
                    return number + 1
    raise AssertionError("the disk was never full")


def take(consumer: raw.Connection, last: int) -> float:
    """Consume and ack all messages up to `last`, in order; return how long the last one took."""
    consumer.call(1, "basic.consume", queue="q")
    for number in range(last + 1):
        began = time.monotonic()
        got = consumer.expect(1, "basic.deliver")
        assert got.body == b"%d." % number + PADDING
        consumer.send(raw.method(1, "basic.ack", delivery_tag=got.delivery_tag))
    return time.monotonic() - began


def found(broker: BrokerProcess) -> list[int]:
    """The numbers of all messages in the queue, which are taken out."""
    with connect(broker) as connection:
        bodies = connection.drain(1, "q")
    assert all(body.partition(b".")[2] == PADDING for body in bodies)
    return [int(body.partition(b".")[0]) for body in bodies]


def node(broker: BrokerProcess) -> dict[str, object]:
    """What the HTTP API says of the node."""
    with contextlib.closing(Api(broker.data_dir / "management.sock")) as api:
        _, rows, _ = api.answer("/api/nodes")
    assert isinstance(rows, list)
    row: dict[str, object] = rows[0]
    return row


def leave_no_room(disk: Path, broker: BrokerProcess, publisher: raw.Connection) -> None:
    """Fill the disk and the ballast's room, and publish what cannot be confirmed (1 and 2)."""
    fill(disk)
    (disk / "data/ballast").write_bytes(b"")
    fill(disk)
    send(publisher, 1)
    broker.expect_line("no room on the disk, nothing is confirmed until there is")
    send(publisher, 2)
    assert publisher.next_method().name == "connection.blocked"


@pytest.mark.parametrize(
    "broker", [{}, {"queue_window_bytes": str(MIB)}], ids=["journal", "pages"], indirect=True
)
def test_publishers_fill_it_and_consumers_make_room(
    disk: Path, broker: BrokerProcess, opened: Opened
) -> None:
    publisher, consumer = opened(), opened()
    sent = publish_until_full(publisher, disk)
    assert sent * len(PADDING) > DISK_BYTES // 2
    assert free(disk) > RESERVE // 2
    send(publisher, sent)
    assert take(consumer, sent) < RESUME_SECONDS_MAX
    names = []
    while (got := publisher.next_method()).name != "basic.ack":
        names.append(got.name)
    assert "connection.unblocked" in names
    assert got.delivery_tag == sent + 1
    broker.expect_line("the disk has room again, publishers are unblocked")
    # The broker has the last ack, whose record comes before the next publish.
    consumer.call(1, "basic.qos", prefetch_count=1)
    send(publisher, 99)
    while publisher.next_method().name != "basic.ack":
        pass
    broker.crash()
    assert found(broker) == [99]


def test_others_fill_it_and_the_ballast_pays(
    disk: Path, broker: BrokerProcess, opened: Opened
) -> None:
    publisher, consumer = opened(), opened()
    for number in range(5):
        send(publisher, number)
        publisher.expect(1, "basic.ack")
    fill(disk)
    send(publisher, 5)
    publisher.expect(1, "basic.ack")
    broker.expect_line("low on disk, publishers are blocked")
    send(publisher, 6)
    names = {publisher.next_method().name for _ in range(2)}
    assert names == {"basic.ack", "connection.blocked"}
    # An ack and a delete of something durable are paid by the ballast too.
    assert consumer.get(1, "q") is not None
    consumer.declare(1, "another", durable=True)
    consumer.call(1, "queue.delete", queue="another")
    assert (disk / "data/ballast").stat().st_size == 0
    told = node(broker)
    assert (told["disk_free_alarm"], told["mem_alarm"]) == (True, False)
    assert told["disk_free_limit"] == RESERVE
    (disk / "filler").unlink()
    assert publisher.next_method().name == "connection.unblocked"
    broker.crash()
    assert found(broker) == [1, 2, 3, 4, 5, 6]
    broker.expect_line("the ballast is created")


def test_without_any_room_nothing_is_confirmed_until_there_is(
    disk: Path, broker: BrokerProcess, opened: Opened
) -> None:
    publisher, other = opened(), opened()
    send(publisher, 0)
    publisher.expect(1, "basic.ack")
    leave_no_room(disk, broker, publisher)
    # Who waits for no sync goes on.
    got = other.get(1, "q")
    assert got is not None
    assert got.body == b"0." + PADDING
    other.call(1, "basic.qos", prefetch_count=1)
    other.send(raw.method(1, "queue.declare", queue="later", durable=True))
    (disk / "filler").unlink()
    began = time.monotonic()
    names = [publisher.next_method().name for _ in range(3)]
    assert sorted(names) == ["basic.ack", "basic.ack", "connection.unblocked"]
    other.expect(1, "queue.declare-ok")
    assert time.monotonic() - began < RESUME_SECONDS_MAX
    broker.crash()
    assert found(broker) == [1, 2]


def test_a_kill_on_a_full_disk_loses_nothing(
    disk: Path, broker: BrokerProcess, opened: Opened
) -> None:
    publisher = opened()
    send(publisher, 0)
    publisher.expect(1, "basic.ack")
    leave_no_room(disk, broker, publisher)
    broker.kill()
    with pytest.raises(BrokerProcessError, match=r"the broker cannot start .*No space left"):
        broker.start()
    (disk / "filler").unlink()
    broker.start()
    assert found(broker) == [0]


def test_a_start_on_a_full_disk_is_paid_by_the_ballast(
    disk: Path, broker: BrokerProcess, opened: Opened
) -> None:
    publisher = opened()
    send(publisher, 0)
    publisher.expect(1, "basic.ack")
    broker.kill()
    fill(disk)
    broker.start()
    assert node(broker)["disk_free_alarm"] is True
    assert found(broker) == [0]


def test_a_stop_on_a_full_disk_does_not_wait_for_ever(
    disk: Path, broker: BrokerProcess, opened: Opened
) -> None:
    publisher = opened()
    send(publisher, 0)
    publisher.expect(1, "basic.ack")
    leave_no_room(disk, broker, publisher)
    began = time.monotonic()
    assert broker.terminate() == 1
    assert time.monotonic() - began < RESUME_SECONDS_MAX
    assert "storage failed" in broker.output
    (disk / "filler").unlink()
    broker.start()
    assert found(broker) == [0]
