"""The search for a directory's identity, which succeeds even if the file `format` is lost.

The identity is the seed of the directory's digests.

Without the seed, the records of the journal and of snapshots cannot be verified; chunks do not need
it.  The seed is in both copies of `format`, in each snapshot (counter `seed`), and in the journal
at each start and checkpoint (field `uuid` of the definition `start`; the checkpoint's record).  A
candidate is accepted if the header of a journal file or of a snapshot matches it.  A digest of 64
bits does not match by chance.  If `format` is damaged, missing or from another store, the next
candidate is tried.

This module only reads.  It cannot find a seed that is in none of these places.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import (
    FORMAT_PATH,
    JOURNAL_DIR,
    SECOND_AT,
    STATE_DIR,
    look_at_format,
)
from leveret.store.journal.files import journal_number
from leveret.store.records.record import (
    GROUP_HEADER_BYTES,
    OLD_GROUP_HEADER_BYTES,
    SEED_MASK,
    group_header_bytes,
)
from leveret.store.snapshot import snapshot_seed, state_generation
from leveret.wire.buffer import read_i64_le

#: The number of bytes of each file that are searched.  A start writes its record first.
_SEARCHED_BYTES: Final = 4 * 1024 * 1024

#: The bytes that precede the seed in a snapshot.
_COUNTER: Final = b"\x04seed"
#: The bytes before the uuid in a start's record, and in a checkpoint's record, where 8 more bytes
#: precede the uuid.
_FIELD: Final = b"\x04uuidx\x00\x00\x00\x10"
_CHECKPOINT: Final = b"\x18\x00\x00\x00\x0c"


@final
class Witness:
    """The group header at the start of a file, against which candidates are checked.

    The digests of a snapshot use a seed derived from the journal's.
    """

    def __init__(self, head: bytes, number: i64, snapshot: bool) -> None:
        self._head: Final = head
        self._number: Final[i64] = number
        self._snapshot: Final = snapshot

    def speaks_for(self, seed: int) -> bool:
        """Return whether the header matches this seed."""
        used = snapshot_seed(seed) if self._snapshot else seed
        return group_header_bytes(self._head, 0, used, self._number) > 0


@final
class Identity:
    """The result of the search: `seed` is None if not found, and `source` is the place of the seed.

    `uuid` is empty if only the seed is known.  `faults` has the position and the description of
    each fault of the format file.
    """

    def __init__(self) -> None:
        self.seed: int | None = None
        self.uuid = b""
        self.created_ms: i64 = 0
        self.source = ""
        self.faults: list[tuple[int, str]] = []


def identify(disk: Disk, given: bytes = b"") -> Identity:
    """Find the seed of the directory on `disk`; `given` is a known uuid.

    Raises: UnknownFormat if this release does not support the layout; StorageFailure.
    """
    found = Identity()
    witnesses = _witnesses(disk)
    copies = look_at_format(disk)
    if not copies:
        found.faults.append((0, "the file is missing"))
    for index, copy in enumerate(copies):
        if copy is None:
            found.faults.append((index * SECOND_AT, f"copy {index + 1} of 2 is damaged"))
        elif found.seed is None and _believed(copy.seed, witnesses):
            found.seed = copy.seed
            found.uuid = copy.uuid
            found.created_ms = copy.created_ms
            found.source = FORMAT_PATH
        elif found.seed != copy.seed:
            what = f"copy {index + 1} of 2 is of another store"
            found.faults.append((index * SECOND_AT, what))
    if found.seed is None and given:
        _try_uuid(found, given, witnesses, "the uuid given")
    if found.seed is None and witnesses:
        _search(found, disk, witnesses)
    return found


def seed_of(uuid: bytes) -> int:
    """Return the seed of a uuid."""
    return int.from_bytes(uuid[:8], "little") & SEED_MASK


def _believed(seed: int, witnesses: list[Witness]) -> bool:
    """Return whether a seed matches any header, or there is none to check."""
    for witness in witnesses:
        if witness.speaks_for(seed):
            return True
    return not witnesses


def _try_uuid(found: Identity, uuid: bytes, witnesses: list[Witness], source: str) -> bool:
    """Accept a uuid if its seed matches, and return whether it does."""
    if len(uuid) != 16 or not _believed(seed_of(uuid), witnesses):
        return False
    found.seed = seed_of(uuid)
    found.uuid = uuid
    found.source = source
    return True


def _search(found: Identity, disk: Disk, witnesses: list[Witness]) -> None:
    """Try damaged copies of the format file, then the values in snapshots and the journal."""
    for block in _raw_copies(disk):
        for uuid in _neighbours(block[16:32]):
            if _try_uuid(found, uuid, witnesses, "a damaged copy of the format file"):
                return
    for folder in (STATE_DIR, JOURNAL_DIR):
        for path in reversed(paths_in(disk, folder)):
            data = _head_of(disk, path, _SEARCHED_BYTES)
            if _search_counter(found, data, witnesses, path):
                return
            for before, between in ((_FIELD, 0), (_CHECKPOINT, 8)):
                if _search_uuid(found, data, witnesses, path, before, between):
                    return


def _search_counter(found: Identity, data: bytes, witnesses: list[Witness], path: str) -> bool:
    """Try each seed in a counter of a snapshot."""
    at = data.find(_COUNTER)
    while at >= 0:
        if at + len(_COUNTER) + 8 <= len(data):
            seed = int(read_i64_le(data, at + len(_COUNTER))) & SEED_MASK
            if _believed(seed, witnesses):
                found.seed = seed
                found.source = path
                return True
        at = data.find(_COUNTER, at + 1)
    return False


def _search_uuid(
    found: Identity,
    data: bytes,
    witnesses: list[Witness],
    path: str,
    before: bytes,
    between: int,
) -> bool:
    """Try each uuid that follows the bytes `before` and `between` further bytes."""
    at = data.find(before)
    while at >= 0:
        first = at + len(before) + between
        if _try_uuid(found, data[first : first + 16], witnesses, path):
            return True
        at = data.find(before, at + 1)
    return False


def _neighbours(uuid: bytes) -> list[bytes]:
    """Return a uuid, and all variants with one changed byte among those of the seed."""
    if len(uuid) != 16:
        return []
    found = [uuid]
    for index in range(8):
        for value in range(256):
            found.append(uuid[:index] + bytes((value,)) + uuid[index + 1 :])  # noqa: PERF401
    return found


def _witnesses(disk: Disk) -> list[Witness]:
    """Return the first header of each journal file and snapshot."""
    found: list[Witness] = []
    for folder in (JOURNAL_DIR, STATE_DIR):
        for path in paths_in(disk, folder):
            name = path.rpartition("/")[2]
            snapshot = folder == STATE_DIR
            number = state_generation(name) if snapshot else journal_number(name)
            head = _head_of(disk, path, GROUP_HEADER_BYTES)
            if number >= 0 and len(head) >= OLD_GROUP_HEADER_BYTES:
                found.append(Witness(head, number, snapshot))
    return found


def paths_in(disk: Disk, folder: str) -> list[str]:
    """Return the paths in a folder, or an empty list if it does not exist."""
    try:
        return [f"{folder}/{name}" for name in disk.list(folder)]
    except StorageFailure:
        return []


def _raw_copies(disk: Disk) -> list[bytes]:
    """Return both blocks of the format file, even if they are damaged."""
    try:
        file = disk.open(FORMAT_PATH)
    except StorageFailure:
        return []
    blocks = [file.read(0, 64), file.read(SECOND_AT, 64)]
    file.close()
    return blocks


def _head_of(disk: Disk, path: str, size: int) -> bytes:
    """Return the first bytes of a file, or b"" if it cannot be read."""
    try:
        file = disk.open(path)
    except StorageFailure:
        return b""
    try:
        return file.read(0, size)
    except StorageFailure:
        return b""
    finally:
        file.close()
