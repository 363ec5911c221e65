"""`leveret backup`: a consistent copy of a broker's data, whether the broker runs or not.

The copy is consistent because files are copied in a fixed order (`store.listing`), and because a
hold prevents the broker from removing files during the copy.  It includes everything confirmed
before the command began, since the hold begins with a sync.  A broker on another machine sends its
files over HTTP (`remote`).
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from leveret import __version__
from leveret.cli import exits
from leveret.cli.backup.files import Copier, Manifest, make_folders, sync_folders
from leveret.cli.backup.hold import BackupHold, NoBroker
from leveret.cli.backup.remote import RemoteBackup
from leveret.cli.contexts.remote import Remote
from leveret.cli.helping.commands import single
from leveret.cli.options import need_empty
from leveret.cli.place import Api, BrokerOptions, Config, ContextName, DataDir
from leveret.cli.printing import output
from leveret.config import Settings
from leveret.sizes import counted
from leveret.store.disk import DiskLocked, ReadDisk, StorageFailure
from leveret.store.format import FORMAT_PATH, JOURNAL_DIR, look_at_format
from leveret.store.listing import FOLDERS, files_in
from leveret.store.recovery.recovery import LOCK_PATH


def backup(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The directory of the backup.")],
    data_dir: DataDir = None,
    config: Config = None,
    link: Annotated[
        bool, typer.Option("--link", help="Hard links instead of copies, on the same file system.")
    ] = False,
    api: Api = "",
    name: ContextName = "",
) -> int:
    """Copy the data of a broker, also while it runs.

    The broker may be on another machine, by its HTTP API.
    """
    meant = BrokerOptions(data_dir, config, api, name)
    place = meant.find_api()
    if link and isinstance(place, Remote):
        text = f"--link needs a broker on this machine, and cannot be used with {place}"
        raise exits.Failure(text, exits.USAGE)
    began = time.monotonic()
    with failing():
        need_empty(to)
        if isinstance(place, Remote):
            manifest = _copy_remote(place, to)
        else:
            manifest = _copy_here(meant.settings(), to, link)
    size = sum(each.bytes for each in manifest.files)
    seconds = time.monotonic() - began
    files = counted(len(manifest.files), "file")
    output.say(f"{to}: {files}, {counted(size, 'byte')} in {seconds:.1f} s")
    return exits.OK


def _copy_here(settings: Settings, to: Path, link: bool) -> Manifest:
    """Copy the files of a broker on this machine.  Raises: Failure; StorageFailure; OSError."""
    try:
        with BackupHold(settings.management_socket) as hold:
            return _copy_held(settings.data_dir, to, link, hold)
    except NoBroker:
        return _copy_stopped(settings.data_dir, to, link)


def _copy_remote(place: Remote, to: Path) -> Manifest:
    """Copy the files that a broker sends over HTTP.  Raises: Failure; OSError."""
    with RemoteBackup(place) as remote:
        total = sum(size for _, size in remote.files)
        _prepare(to, total)
        manifest = remote.manifest
        with progress("copying", total) as advance:
            manifest.files = remote.copy(to, advance)
        sync_folders(to)
        remote.check(manifest.files)
    manifest.write(to)
    return manifest


@contextmanager
def failing() -> Iterator[None]:
    """Convert disk errors to Failure."""
    try:
        yield
    except DiskLocked as locked:
        text = f"{locked}, but no broker listens on its management socket; see management_socket"
        raise exits.Failure(text, exits.UNUSABLE) from None
    except StorageFailure as failure:
        raise exits.Failure(str(failure), exits.UNUSABLE) from None
    except OSError as error:
        raise exits.Failure(str(error), exits.UNUSABLE) from None


def _copy_held(data: Path, to: Path, link: bool, hold: BackupHold) -> Manifest:
    """Copy a running broker's files.  Raises: Failure; StorageFailure; OSError."""
    manifest = _manifest(data)
    manifest.time_ms = int(str(hold.answer.get("time_ms")))
    manifest.durable_group = int(str(hold.answer.get("durable_group")))
    _copy_all(data, to, link, manifest, hold.beat)
    hold.end()
    manifest.write(to)
    return manifest


def _copy_stopped(data: Path, to: Path, link: bool) -> Manifest:
    """Copy the files of a stopped broker, which cannot start during the copy."""
    disk = ReadDisk(str(data))
    disk.lock(LOCK_PATH)
    manifest = _manifest(data)
    _copy_all(data, to, link, manifest, _nothing)
    manifest.write(to)
    disk.close()
    return manifest


def _manifest(data: Path) -> Manifest:
    """Return a manifest without files for the backup of a directory.  Raises: Failure."""
    for copy in look_at_format(ReadDisk(str(data))):
        if copy is not None:
            return Manifest(__version__, copy.uuid.hex(), time.time_ns() // 1_000_000, 0)
    raise exits.Failure(f"{data} has no format file; see leveret store salvage", exits.UNUSABLE)


def _copy_all(
    data: Path, to: Path, link: bool, manifest: Manifest, beat: Callable[[], None]
) -> None:
    """Copy the format file, then the files of `FOLDERS` in their order; sync the directories."""
    disk = ReadDisk(str(data))
    total = sum(size for folder in FOLDERS for _, size in files_in(disk, folder))
    _prepare(to, 0 if link else total)
    with progress("copying", total) as advance:

        def copied(size: int) -> None:
            advance(size)
            beat()

        copier = Copier(data, to, copied, links=link)
        manifest.files.append(copier.copy(FORMAT_PATH, (data / FORMAT_PATH).stat().st_size))
        for folder in FOLDERS:
            files = files_in(disk, folder)
            for path, size in files:
                # The open file of the journal keeps growing, and a start may truncate it.
                fixed = folder != JOURNAL_DIR or path != files[-1][0]
                manifest.files.append(copier.copy(path, size, link=fixed))
                beat()
    sync_folders(to)


def _prepare(to: Path, total: int) -> None:
    """Create the directory for a backup of `total` bytes.  Raises: Failure; OSError."""
    make_folders(to)
    if shutil.disk_usage(to).free < total:
        raise exits.Failure(f"{to} has no space for {total} bytes", exits.UNUSABLE)


@contextmanager
def progress(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that adds copied bytes to a progress bar, which only a terminal shows."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn(doing), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda size: bar.advance(task, size)


def _nothing() -> None:
    """Ignore progress."""


def app() -> typer.Typer:
    """Return the command."""
    return single("backup", backup)
