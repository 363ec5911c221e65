"""`leveret restore`: create a data directory from a backup, and verify every byte of it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from leveret.cli import exits
from leveret.cli.backup.backup import failing, progress
from leveret.cli.backup.files import (
    Copied,
    Copier,
    make_folders,
    read_manifest,
    sync_folder,
    sync_folders,
)
from leveret.cli.helping.commands import single
from leveret.cli.options import need_empty
from leveret.cli.place import BrokerOptions, Config, DataDir
from leveret.cli.printing import output
from leveret.sizes import counted
from leveret.store.disk import RealDisk
from leveret.store.format import FORMAT_PATH
from leveret.store.listing import FOLDERS
from leveret.store.recovery.recovery import LOCK_PATH


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="The backup.")],
    data_dir: DataDir = None,
    config: Config = None,
    force: Annotated[
        bool, typer.Option("--force", help="Restore even a damaged backup, and list the damage.")
    ] = False,
) -> int:
    """Create a data directory from a backup.

    Every byte is verified and synced. The broker must not run.

    It ends with 0 if the backup is intact, 1 if a damaged one was forced, 2 if it was refused.
    """
    data = BrokerOptions(data_dir, config).settings().data_dir
    need_empty(data)
    with failing():
        files, faults = _files_of(backup, force)
        make_folders(data)
        disk = RealDisk(str(data))
        disk.lock(LOCK_PATH)
        faults += _copy(backup, data, files)
        if faults and not force:
            _remove(data)
            disk.close()
            raise exits.Failure("the backup is damaged:", exits.UNUSABLE, *faults)
        _name_format(data)
        disk.close()
    for fault in faults:
        output.say(f"damaged: {fault}")
    size = sum(each.bytes for each in files)
    output.say(f"{data}: {counted(len(files), 'file')}, {counted(size, 'byte')}")
    return exits.NOTHING if faults else exits.OK


def _files_of(backup: Path, force: bool) -> tuple[list[Copied], list[str]]:
    """Return the files of a backup, from its manifest or, if forced, from its directories."""
    try:
        return read_manifest(backup).files, []
    except exits.Failure as failure:
        if not force:
            raise
        paths = [FORMAT_PATH]
        for folder in FOLDERS:
            if (backup / folder).is_dir():
                paths += [f"{folder}/{path.name}" for path in sorted((backup / folder).iterdir())]
        found = [path for path in paths if (backup / path).is_file()]
        files = [Copied(path, (backup / path).stat().st_size, "") for path in found]
        return files, [str(failure)]


def _copy(backup: Path, data: Path, files: list[Copied]) -> list[str]:
    """Copy all files; return a description of each fault."""
    faults: list[str] = []
    with progress("restoring", sum(each.bytes for each in files)) as advance:
        copier = Copier(backup, data, advance)
        for each in files:
            source = backup / each.path
            if not source.is_file():
                faults.append(f"{each.path} is missing")
                continue
            # A hard link may have grown since; the additional bytes do not belong to the backup.
            size = min(each.bytes, source.stat().st_size)
            if size < each.bytes:
                faults.append(f"{each.path} has {size} of {counted(each.bytes, 'byte')}")
            if copier.copy(each.path, size).xxh3 != each.xxh3 and each.xxh3 and size == each.bytes:
                faults.append(f"{each.path} does not match its checksum")
            if each.path == FORMAT_PATH:
                # Until everything is copied, the directory must not look like a store.
                (data / FORMAT_PATH).rename(data / f"{FORMAT_PATH}.new")
    return faults


def _name_format(data: Path) -> None:
    """Make the directory a store by renaming the format file, after everything else is synced."""
    sync_folders(data)
    with contextlib.suppress(FileNotFoundError):
        (data / f"{FORMAT_PATH}.new").rename(data / FORMAT_PATH)
    sync_folder(data)


def _remove(data: Path) -> None:
    """Remove the copied files, but not the directory."""
    for folder in FOLDERS:
        for path in (data / folder).iterdir():
            path.unlink()
        (data / folder).rmdir()
    for name in (f"{FORMAT_PATH}.new", LOCK_PATH):
        (data / name).unlink(missing_ok=True)


def app() -> typer.Typer:
    """Return the command."""
    return single("restore", restore)
