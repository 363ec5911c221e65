"""The file `format`: the product, the layout version, and the identity of the data directory.

It contains a block of 64 bytes twice, at 0 and at 4096, so that no torn page or damaged byte
affects both copies:

     0  8    magic "LEVERET" and a zero
     8  u32  version of the layout of everything in the directory
    12  u32  zero
    16  16   uuid, created once; it seeds the digests of journal and snapshots
    32  i64  time of creation, ms since the epoch
    40  16   zero
    56  8    digest of bytes 0-55

Invariants: the file is created by a rename, before any other file with contents, and only repaired
later.  A directory with contents but without this file, or with an unknown version, is refused,
because it may belong to another program.  A start raises an older version that this release reads,
before it writes anything that the releases of that version cannot read.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64
from xxhash import xxh3_64_digest

from leveret.store.disk import Disk, StorageFailure
from leveret.store.records.record import SEED_MASK
from leveret.wire.buffer import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le

FORMAT_PATH: Final = "format"
FORMAT_VERSION: Final = 5
#: The oldest version that this release reads.  Version 4 adds bodies that precede their messages in
#: the journal, and version 5 the time to the header of a group.
_FORMAT_VERSION_MIN: Final = 3
JOURNAL_DIR: Final = "journal"
SEGMENTS_DIR: Final = "segments"
STATE_DIR: Final = "state"
QUARANTINE_DIR: Final = "quarantine"

#: Other files that may exist in a directory without a format file: those of an interrupted start,
#: those created by the shell, and those of a new file system.
_MAY_BE_THERE: Final = ("format.new", "lock", "ballast", "management.sock", "lost+found")

_MAGIC: Final = b"LEVERET\x00"
SECOND_AT: Final = 4096
_BLOCK_BYTES: Final = 64


class UnknownFormat(StorageFailure):
    """The directory is not a store's, or has a layout that this release does not support."""

    def __init__(self, reason: str) -> None:
        super().__init__("open", FORMAT_PATH, reason)


@final
class Format:
    """The contents of the file; `damaged` is true if one of the copies is damaged."""

    def __init__(self, uuid: bytes, created_ms: i64, damaged: bool) -> None:
        self.uuid: Final = uuid
        self.created_ms: Final[i64] = created_ms
        self.damaged: Final = damaged
        self.seed: Final[int] = int.from_bytes(uuid[:8], "little") & SEED_MASK


def open_format(disk: Disk, new_uuid: bytes, now_ms: i64) -> Format:
    """Return the contents of the format file; create it and the folders in a new store.

    Raises: UnknownFormat if the directory is not a store's; StorageFailure if the disk fails.
    """
    check_directory(disk)
    names = disk.list("")
    for folder in (JOURNAL_DIR, SEGMENTS_DIR, STATE_DIR, QUARANTINE_DIR):
        disk.make_dir(folder)
    disk.fsync_dir("")
    if FORMAT_PATH in names:
        return _read(disk)
    if len(new_uuid) != 16:
        raise ValueError("a uuid has 16 bytes")
    _write(disk, _block(new_uuid, now_ms))
    return Format(new_uuid, now_ms, False)


def look_at_format(disk: Disk) -> list[Format | None]:
    """Return the contents of each copy in the file, None for a damaged one, without a repair.

    Return an empty list if the file does not exist.

    Raises: UnknownFormat if an intact copy has an unknown layout; StorageFailure.
    """
    if FORMAT_PATH not in disk.list(""):
        return []
    copies: list[Format | None] = []
    first, second, _ = _blocks(disk)
    for block in (first, second):
        if _is_block(block):
            _version(block)
            copies.append(Format(block[16:32], read_i64_le(block, 32), False))
        else:
            copies.append(None)
    return copies


def check_directory(disk: Disk) -> None:
    """Refuse a directory that is not a store's, without writing to it.

    Raises: UnknownFormat if it belongs to another program or has an unknown layout; StorageFailure
    if the disk fails.
    """
    names = disk.list("")
    if FORMAT_PATH in names:
        first, second, _ = _blocks(disk)
        _version(first if _is_block(first) else second)
        return
    for name in names:
        if name in (JOURNAL_DIR, SEGMENTS_DIR, STATE_DIR):
            if disk.list(name):
                raise UnknownFormat(f"{name}/ has files, but the format file is missing")
        elif name not in _MAY_BE_THERE and name != QUARANTINE_DIR and not name.startswith("."):
            raise UnknownFormat(f"not a broker's directory: it contains {name}, but no format file")


def _blocks(disk: Disk) -> tuple[bytes, bytes, i64]:
    """Return both copies of the block and the size of the file."""
    file = disk.open(FORMAT_PATH)
    try:
        return file.read(0, _BLOCK_BYTES), file.read(SECOND_AT, _BLOCK_BYTES), i64(file.size())
    finally:
        file.close()


def _version(block: bytes) -> None:
    """Refuse a damaged block, or a block of another layout.  Raises: UnknownFormat."""
    if not _is_block(block):
        raise UnknownFormat("both copies of the format file are damaged, or it is not a store's")
    version = read_i32_le(block, 8)
    if not _FORMAT_VERSION_MIN <= version <= FORMAT_VERSION:
        raise UnknownFormat(f"layout {version} is not supported by this release")


def _block(uuid: bytes, created_ms: i64) -> bytes:
    """Return one copy of the block."""
    writer = BytesWriter()
    writer.write(_MAGIC)
    write_i32_le(writer, FORMAT_VERSION)
    write_i32_le(writer, 0)
    writer.write(uuid)
    write_i64_le(writer, created_ms)
    writer.write(bytes(16))
    head = writer.getvalue()
    return head + xxh3_64_digest(head)


def _write(disk: Disk, block: bytes) -> None:
    """Create or replace the file atomically."""
    path = FORMAT_PATH + ".new"
    file = disk.open(path, create=True)
    file.truncate(0)
    file.append([block, bytes(SECOND_AT - _BLOCK_BYTES), block])
    file.sync()
    file.close()
    disk.rename(path, FORMAT_PATH)
    disk.fsync_dir("")


def _read(disk: Disk) -> Format:
    """Return the contents of the file; repair a damaged copy, and raise an older version."""
    first, second, size = _blocks(disk)
    block = first if _is_block(first) else second
    _version(block)
    damaged = first != second or size != SECOND_AT + _BLOCK_BYTES
    current = _block(block[16:32], read_i64_le(block, 32))
    if damaged or block != current:
        _write(disk, current)
    return Format(block[16:32], read_i64_le(block, 32), damaged)


def _is_block(block: bytes) -> bool:
    """Return whether a copy of the block is complete and undamaged."""
    return (
        len(block) == _BLOCK_BYTES
        and block.startswith(_MAGIC)
        and xxh3_64_digest(block[:56]) == block[56:]
    )
