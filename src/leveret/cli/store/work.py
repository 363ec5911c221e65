"""The operations of `leveret store`: open a directory, survey it with a progress bar, write one."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from leveret.cli import exits
from leveret.cli.backup.hold import BackupHold, NoBroker
from leveret.config import MANAGEMENT_SOCKET
from leveret.store.disk import DiskLocked, ReadDisk, RealDisk, StorageFailure
from leveret.store.recovery.recovery import LOCK_PATH
from leveret.store.survey.salvage import Salvage, write_salvage
from leveret.store.survey.survey import Survey

#: The interval of progress updates.
_DRAW_SECONDS: Final = 0.1


@contextmanager
def readable() -> Iterator[None]:
    """Convert disk errors to Failure."""
    try:
        yield
    except DiskLocked as locked:
        raise exits.Failure(f"{locked}; stop it, or see --running", exits.UNUSABLE) from None
    except StorageFailure as failure:
        raise exits.Failure(str(failure), exits.UNUSABLE) from None


def open_store(directory: Path, *, locked: bool) -> ReadDisk:
    """Open a directory for reading; `locked` excludes brokers.  Raises: StorageFailure."""
    disk = ReadDisk(str(directory))
    if locked:
        disk.lock(LOCK_PATH)
    return disk


def read_uuid(text: str) -> bytes:
    """Return the uuid in an option, or b"" if it is not given.  Raises: Failure."""
    try:
        raw = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        raw = b"?"
    if raw and len(raw) != 16:
        raise exits.Failure("--uuid takes 32 hexadecimal digits", exits.USAGE)
    return raw


@contextmanager
def held(directory: Path, *, running: bool) -> Iterator[Callable[[], None]]:
    """Prevent a running broker from removing files during the block.

    The caller must call the yielded function often.  Without `running`, it does nothing.
    """
    if not running:
        yield _nothing
        return
    try:
        hold = BackupHold(directory / MANAGEMENT_SOCKET)
    except NoBroker:
        # No broker runs, or its socket has another path.  The command then fails if the broker
        # removes a file.
        yield _nothing
        return
    with hold:
        yield hold.beat


def run_survey(survey: Survey, doing: str, beat: Callable[[], None]) -> None:
    """Run a survey to its end, with a progress bar on a terminal.  Raises: StorageFailure."""
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        for _ in survey.run():
            beat()
        return
    columns = (TextColumn(doing), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task(doing, total=None)
        drawn = 0.0
        for _ in survey.run():
            beat()
            now = time.monotonic()
            if now - drawn >= _DRAW_SECONDS:
                drawn = now
                done, total = int(survey.bytes_done), int(survey.bytes_total)
                progress.update(task, completed=done, total=total, refresh=True)


def _nothing() -> None:
    """Do nothing, if there is no broker."""


def write_new(saved: Salvage, to: Path) -> None:
    """Write the salvaged data to a new directory.  Raises: StorageFailure."""
    disk = RealDisk(str(to))
    disk.lock(LOCK_PATH)
    for _ in write_salvage(disk, saved, secrets.token_bytes(16), time.time_ns() // 1_000_000):
        pass
    disk.close()
