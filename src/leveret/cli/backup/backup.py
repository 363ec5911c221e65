"""`leveret backup`: a consistent copy of a broker's data while it runs, or while it is stopped.

Order makes it consistent, and a hold that keeps the broker from removing files meanwhile:

    snapshots   first: all that they refer to is there, and the journal goes beyond their barrier
    journal     up to where it was when the snapshots were copied; its last group may be torn
    segments    last: what the journal says lies in a chunk lay there before it said so

Everything confirmed before the command began is in it, for the hold begins with a sync.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from leveret import __version__
from leveret.cli import exits
from leveret.cli.backup.files import FOLDERS, Copier, Manifest, make_folders, sync_folders
from leveret.cli.backup.hold import Hold, NoBroker
from leveret.cli.options import need_empty
from leveret.cli.place import Config, DataDir, read_settings
from leveret.cli.printing import output
from leveret.store.disk import DiskLocked, ReadDisk, StorageFailure
from leveret.store.format import FORMAT_PATH, look_at_format
from leveret.store.journal.files import journal_number
from leveret.store.recovery.recovery import LOCK_PATH
from leveret.store.segments.segments import segment_number
from leveret.store.snapshot import state_generation

#: Which names are files of a folder; a snapshot that has no name yet does not count.
_NUMBERS: Final[dict[str, Callable[[str], int]]] = {
    "state": state_generation,
    "journal": journal_number,
    "segments": segment_number,
}


def backup(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where the backup goes.")],
    data_dir: DataDir = None,
    config: Config = None,
    link: Annotated[
        bool, typer.Option("--link", help="Hard links in place of copies, on one file system.")
    ] = False,
) -> int:
    """Copy the data of a broker on this machine, which may run on meanwhile."""
    settings = read_settings(data_dir, config)
    began = time.monotonic()
    with failing():
        need_empty(to)
        try:
            with Hold(settings.management_socket) as hold:
                manifest = _copy_held(settings.data_dir, to, link, hold)
        except NoBroker:
            manifest = _copy_stopped(settings.data_dir, to, link)
    size = sum(each.bytes for each in manifest.files)
    seconds = time.monotonic() - began
    output.say(f"{to}: {len(manifest.files)} files, {size} bytes in {seconds:.1f} s")
    return exits.OK


@contextmanager
def failing() -> Iterator[None]:
    """Turn what the disk refuses into Failure."""
    try:
        yield
    except DiskLocked as locked:
        text = f"{locked}, but nobody listens at its management socket; see management_socket"
        raise exits.Failure(text, exits.UNUSABLE) from None
    except StorageFailure as failure:
        raise exits.Failure(str(failure), exits.UNUSABLE) from None
    except OSError as error:
        raise exits.Failure(str(error), exits.UNUSABLE) from None


def _copy_held(data: Path, to: Path, link: bool, hold: Hold) -> Manifest:
    """Copy a running broker's files.  Raises: Failure; StorageFailure; OSError."""
    manifest = _manifest(data)
    manifest.time_ms = int(str(hold.answer.get("time_ms")))
    manifest.durable_group = int(str(hold.answer.get("durable_group")))
    _copy_all(data, to, link, manifest, hold.beat)
    hold.end()
    manifest.write(to)
    return manifest


def _copy_stopped(data: Path, to: Path, link: bool) -> Manifest:
    """Copy the files of a broker that does not run, which is kept from starting meanwhile."""
    disk = ReadDisk(str(data))
    disk.lock(LOCK_PATH)
    manifest = _manifest(data)
    _copy_all(data, to, link, manifest, _nothing)
    manifest.write(to)
    disk.close()
    return manifest


def _manifest(data: Path) -> Manifest:
    """Return the manifest of a backup of a directory, without files.  Raises: Failure."""
    for copy in look_at_format(ReadDisk(str(data))):
        if copy is not None:
            return Manifest(__version__, copy.uuid.hex(), time.time_ns() // 1_000_000, 0)
    raise exits.Failure(f"{data} has no format file; see leveret store salvage", exits.UNUSABLE)


def _copy_all(
    data: Path, to: Path, link: bool, manifest: Manifest, beat: Callable[[], None]
) -> None:
    """Copy snapshots, journal and segments in this order."""
    total = sum(size for folder in FOLDERS for _, size in _files(data, folder))
    make_folders(to)
    if not link and shutil.disk_usage(to).free < total:
        raise exits.Failure(f"{to} has no room for {total} bytes", exits.UNUSABLE)
    with progress("copying", total) as advance:

        def copied(size: int) -> None:
            advance(size)
            beat()

        copier = Copier(data, to, copied, links=link)
        manifest.files.append(copier.copy(FORMAT_PATH, (data / FORMAT_PATH).stat().st_size))
        for folder in FOLDERS:
            files = _files(data, folder)
            for path, size in files:
                # The journal's open file goes on growing, and a start may cut it.
                fixed = folder != "journal" or path != files[-1][0]
                manifest.files.append(copier.copy(path, size, link=fixed))
                beat()
    sync_folders(to)


def _files(data: Path, folder: str) -> list[tuple[str, int]]:
    """Return the paths and sizes of a folder's files as they are now, in order."""
    number = _NUMBERS[folder]
    try:
        names = sorted(name for name in os.listdir(data / folder) if number(name) >= 0)  # noqa: PTH208
    except FileNotFoundError:
        return []
    return [(f"{folder}/{name}", (data / folder / name).stat().st_size) for name in names]


@contextmanager
def progress(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give what to call with the bytes done; it draws a bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn(doing), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda size: bar.advance(task, size)


def _nothing() -> None:
    """Stand in where nobody wants to hear of progress."""


def app() -> typer.Typer:
    """Return the command."""
    made = typer.Typer(rich_markup_mode=None, add_completion=False)
    made.command("backup")(backup)
    return made
