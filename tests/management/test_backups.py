"""Backups over HTTP in the broker: when they end, how fast they go, and what a reader gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from xxhash import xxh3_128_hexdigest

from leveret.app.parts import SystemClock
from leveret.management.backup.backups import BACKUP_PIECE_BYTES, Backups, NoPlace, Pace, Unreadable
from leveret.management.backup.source import FileSource, Listed, listed
from leveret.store.disk import RealDisk
from leveret.store.format import open_format
from leveret.store.listing import files_in, read_some


class Files:
    """The files of a data directory; `holds` counts, and `released` is set at the end of one."""

    def __init__(self, directory: Path) -> None:
        self.disk = RealDisk(str(directory))
        self.holds = 0
        self.released = asyncio.Event()
        self.log: list[str] = []

    async def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1
        self.released.set()

    async def look(self) -> Listed | None:
        return listed(self.disk)

    async def read(self, path: str, at: int, size: int) -> bytes:
        return read_some(self.disk, path, at, size)

    async def durable(self) -> int:
        return 7

    def backups(self, silence_seconds: float = 60, most: int = 2) -> Backups:
        source = FileSource(self.hold, self.release, self.look, self.read)

        def said(_level: str, text: str) -> None:
            self.log.append(text)

        return Backups(
            source, self.durable, SystemClock(), said, most=most, silence_seconds=silence_seconds
        )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a file of more than one piece."""
    open_format(RealDisk(str(tmp_path)), b"u" * 16, 1)
    (tmp_path / "segments" / f"{1:016d}.seg").write_bytes(bytes(range(256)) * 1000)
    (tmp_path / "segments" / f"{2:016d}.seg").write_bytes(b"")
    (tmp_path / "segments" / f"{3:016d}.tmp").write_bytes(b"not kept")
    (tmp_path / "state" / f"{1:016d}.new").write_bytes(b"no name yet")
    return tmp_path


PATH = f"segments/{1:016d}.seg"


def run(directory: Path, scenario: Callable[[Files], Awaitable[None]]) -> None:
    """Run a scenario in a loop."""

    async def whole() -> None:
        await scenario(Files(directory))

    asyncio.run(whole())


def test_the_list_has_what_a_copy_needs(directory: Path) -> None:
    found = listed(RealDisk(str(directory)))
    assert found is not None
    assert found.uuid == (b"u" * 16).hex()
    empty = f"segments/{2:016d}.seg"
    assert list(found.files) == ["format", PATH, empty]
    assert (found.files[PATH], found.files[empty]) == (256_000, 0)
    assert files_in(RealDisk(str(directory)), "none") == []


def test_one_that_nobody_reads_ends_by_itself(directory: Path) -> None:
    async def scenario(files: Files) -> None:
        backup = await files.backups(silence_seconds=0.02).begin("by a test")
        assert files.holds == 1
        await files.released.wait()
        assert (files.holds, backup.over) == (0, True)
        assert "nothing was read for 0.02 s" in files.log[-1]

    run(directory, scenario)


def test_it_lets_go_once(directory: Path) -> None:
    async def scenario(files: Files) -> None:
        backups = files.backups()
        backup = await backups.begin("by a test")
        backups.end(backup, "it is enough")
        backups.end(backup, "it is enough")
        assert files.holds == 0
        await backups.begin("by a test")
        backups.close()
        assert (files.holds, backups.by_id) == (0, {})

    run(directory, scenario)


def test_there_is_no_place_for_more(directory: Path) -> None:
    async def scenario(files: Files) -> None:
        backups = files.backups(most=1)
        backup = await backups.begin("by a test")
        with pytest.raises(NoPlace):
            await backups.begin("by a test")
        backups.end(backup, "it is enough")
        await backups.begin("by a test")
        assert files.holds == 1
        backups.close()

    run(directory, scenario)


def test_what_cannot_be_read_is_held_no_longer(directory: Path) -> None:
    async def scenario(files: Files) -> None:
        (directory / "format").unlink()
        backups = files.backups(most=1)
        for _ in range(2):
            with pytest.raises(Unreadable):
                await backups.begin("by a test")
        assert files.holds == 0

    run(directory, scenario)


def test_a_file_is_sent_as_long_as_it_was(directory: Path) -> None:
    async def scenario(files: Files) -> None:
        backups = files.backups()
        backup = await backups.begin("by a test")
        path = directory / PATH
        whole = path.read_bytes()
        with path.open("ab") as file:
            file.write(b"what came later")
        sent: list[bytes] = []

        async def write(data: bytes) -> None:
            sent.append(data)

        await backups.send(backup, PATH, 0, write)
        assert b"".join(sent) == whole
        assert max(map(len, sent)) == BACKUP_PIECE_BYTES
        assert backup.sent == len(whole)
        assert backup.digest(PATH) == xxh3_128_hexdigest(whole)
        assert backup.digest("format") == ""
        assert backup.digest(f"segments/{2:016d}.seg") == xxh3_128_hexdigest(b"")
        backups.close()

    run(directory, scenario)


def test_a_checksum_is_of_the_whole_file_however_it_was_read(directory: Path) -> None:
    async def scenario(files: Files) -> None:
        backups = files.backups()
        backup = await backups.begin("by a test")
        whole = (directory / PATH).read_bytes()

        async def breaks(_data: bytes) -> None:
            raise ConnectionResetError

        async def write(_data: bytes) -> None:
            return

        with pytest.raises(ConnectionResetError):
            await backups.send(backup, PATH, 0, breaks)
        # Its end alone tells nothing of it.
        await backups.send(backup, PATH, len(whole) - 5, write)
        assert backup.digest(PATH) == ""
        await backups.send(backup, PATH, 1_000, write)
        assert backup.digest(PATH) == xxh3_128_hexdigest(whole)
        backups.close()

    run(directory, scenario)


def test_who_reads_on_after_its_end_gets_nothing_more(directory: Path) -> None:
    async def scenario(files: Files) -> None:
        backups = files.backups()
        backup = await backups.begin("by a test")
        sent: list[bytes] = []

        async def write(data: bytes) -> None:
            sent.append(data)
            backups.end(backup, "it is enough")

        with pytest.raises(ConnectionResetError):
            await backups.send(backup, PATH, 0, write)
        assert len(sent) == 1

    run(directory, scenario)


def test_a_file_that_is_gone_is_told_in_the_log(directory: Path) -> None:
    async def scenario(files: Files) -> None:
        backups = files.backups()
        backup = await backups.begin("by a test")
        (directory / PATH).unlink()

        async def write(_data: bytes) -> None:
            return

        with pytest.raises(ConnectionResetError):
            await backups.send(backup, PATH, 0, write)
        assert f"{PATH} cannot be read from byte 0 on" in files.log[-1]
        backups.close()

    run(directory, scenario)


def test_all_that_send_keep_one_pace() -> None:
    pace = Pace(1000)
    assert pace.wait_for(100, 5.0) == 0
    assert pace.wait_for(100, 5.0) == pytest.approx(0.1)
    assert pace.wait_for(100, 5.1) == pytest.approx(0.1)
    # Who did not send for long has no more for that.
    assert pace.wait_for(100, 60.0) == 0
    assert pace.wait_for(100, 60.0) == pytest.approx(0.1)
