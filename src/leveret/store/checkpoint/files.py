"""The file operations of a checkpoint: it writes segments and the snapshot, and removes old files.

The work runs in a separate thread.  Like the journal's files, it stops permanently at the first
failure.  If there is no space (`DiskFull`), the same work may be repeated, because finished parts
are removed from it and no file ends in an incomplete part.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.store.checkpoint.checkpoint import CheckpointWork, SegmentWrite
from leveret.store.disk import Disk, DiskFull, StorageFailure, StoreFile, append_whole, make_file
from leveret.store.format import JOURNAL_DIR, SEGMENTS_DIR, STATE_DIR
from leveret.store.journal.files import journal_number
from leveret.store.records.record import GROUP_HEADER_BYTES
from leveret.store.segments.segments import segment_number, segment_path
from leveret.store.snapshot import state_generation, state_path


@final
class CheckpointFiles:
    """Does the work of checkpoints; only one thread at a time may call it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._generation: i64 = -1
        self._snapshot: StoreFile | None = None
        self._snapshot_end: i64 = 0
        self._segment_number: i64 = -1
        self._segment_end: i64 = 0
        self._segment: StoreFile | None = None
        self._failure: StorageFailure | None = None
        #: True while work is being done, and permanently after an unexpected exception.
        self._broken = False
        self._holds: i64 = 0
        self._dropped: set[int] = set()

    def hold(self, on: bool) -> None:
        """Stop removing files, or end this caller's hold; holds are counted.

        After the last hold, the next checkpoint removes the files that were held.
        """
        self._holds += 1 if on else -1

    def run(self, work: CheckpointWork) -> None:
        """Write and sync the data of `work`; commit and clean up if it has a header.

        Raises: DiskFull, after which the caller may try again with the same work; StorageFailure,
        after which nothing may be confirmed; RuntimeError if earlier work raised an unexpected
        exception, so that the snapshot is incomplete.
        """
        if self._failure is not None:
            raise StorageFailure(
                self._failure.verb, self._failure.path, "failed before", self._failure.errno
            )
        if self._broken:
            raise RuntimeError("a failed checkpoint cannot be continued")
        self._broken = True
        try:
            self._run(work)
        except StorageFailure as failure:
            self._broken = False
            if not isinstance(failure, DiskFull):
                self._failure = failure
            raise
        self._broken = False

    def _run(self, work: CheckpointWork) -> None:
        """Do the work, and remove finished parts from it."""
        while work.segments:
            self._append_chunks(work.segments[0])
            work.segments.pop(0)
        snapshot = self._snapshot_of(work)
        append_whole(snapshot, [work.records], int(self._snapshot_end))
        self._snapshot_end += len(work.records)
        work.records = b""
        if work.header:
            self._commit(work, snapshot)
            self._retire(work)

    def _append_chunks(self, write: SegmentWrite) -> None:
        """Append chunks to their segment and sync often, so that no single sync takes long."""
        file = self._segment
        if file is None or write.file_number != self._segment_number:
            if file is not None:
                file.close()
                self._segment = None
            file = make_file(self._disk, segment_path(int(write.file_number)))
            file.truncate(0)
            # The journal may refer to the file before the commit.
            self._disk.fsync_dir(SEGMENTS_DIR)
            self._segment = file
            self._segment_number = write.file_number
            self._segment_end = 0
        append_whole(file, write.parts, int(self._segment_end))
        for part in write.parts:
            self._segment_end += len(part)
        file.sync()

    def _snapshot_of(self, work: CheckpointWork) -> StoreFile:
        """Return the snapshot's file; a new one begins with space for the header."""
        file = self._snapshot
        if file is None:
            file = make_file(self._disk, _unnamed(work))
            file.truncate(0)
            self._snapshot = file
            self._snapshot_end = 0
        if self._snapshot_end == 0:
            append_whole(file, [bytes(GROUP_HEADER_BYTES)], 0)
            self._snapshot_end = GROUP_HEADER_BYTES
        return file

    def _commit(self, work: CheckpointWork, snapshot: StoreFile) -> None:
        """Complete and rename the snapshot, after all data to which it refers is durable."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        self._disk.fsync_dir(SEGMENTS_DIR)
        snapshot.pwrite(work.header, 0)
        snapshot.sync()
        snapshot.close()
        self._snapshot = None
        self._disk.rename(_unnamed(work), state_path(int(work.head.generation)))
        self._disk.fsync_dir(STATE_DIR)

    def _retire(self, work: CheckpointWork) -> None:
        """Remove files that the remaining snapshots do not need, unless files are held."""
        self._dropped.update(work.segments_dropped)
        if self._holds > 0:
            return
        for name in self._disk.list(STATE_DIR):
            generation = state_generation(name.removesuffix(".new"))
            if generation >= 0 and generation not in (
                work.head.generation,
                work.previous_generation,
            ):
                self._disk.unlink(f"{STATE_DIR}/{name}")
        for name in self._disk.list(JOURNAL_DIR):
            if 0 <= journal_number(name) < work.journal_file_kept:
                self._disk.unlink(f"{JOURNAL_DIR}/{name}")
        for name in self._disk.list(SEGMENTS_DIR):
            if segment_number(name) in self._dropped:
                self._disk.unlink(f"{SEGMENTS_DIR}/{name}")
        self._dropped.clear()
        for folder in (STATE_DIR, JOURNAL_DIR, SEGMENTS_DIR):
            self._disk.fsync_dir(folder)


def _unnamed(work: CheckpointWork) -> str:
    """Return the path of a snapshot that is not committed yet."""
    return f"{state_path(int(work.head.generation))}.new"
