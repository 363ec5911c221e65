"""The streams in the data directory of a stopped broker, or in a backup.

Snapshot and journal are read once in a process, and again if the directory has changed.  The chunks
of segments are read on demand.  No byte of the directory is changed.  While it is being read, no
broker can start on it.

Invariants: the streams have the same contents as in a broker after a start.  Messages that are only
in the journal are returned in a chunk built for them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from leveret.chunk import CHUNK_HEADER_BYTES, ChunkBuilder
from leveret.errors import NotFound
from leveret.limits import CHUNK_RECORDS_MAX
from leveret.spark.options.read import OptionError, Options
from leveret.store.disk import DiskLocked, ReadDisk, StorageFailure
from leveret.store.format import JOURNAL_DIR, STATE_DIR, UnknownFormat
from leveret.store.records.catalog import BATCH_START
from leveret.store.records.fields import number
from leveret.store.recovery.mending import read_best
from leveret.store.recovery.recovery import LOCK_PATH
from leveret.store.segments.segments import ChunkRef, segment_path
from leveret.store.segments.walk import read_what_can_be
from leveret.store.survey.holdings import Holding
from leveret.store.survey.identity import identify
from leveret.store.survey.survey import Survey

#: The smallest and the greatest timestamp in a chunk's header, 8 bytes each.
_MIN_TIMESTAMP: Final = slice(32, 40)
_MAX_TIMESTAMP: Final = slice(40, 48)

#: The name and size of each file of the journal and the snapshots.
Signature = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class StoredRange:
    """The messages from `first` to `last`, in a chunk at `place` or in the journal (None)."""

    first: int
    last: int
    place: ChunkRef | None = None


class StoredStream:
    """One stream of a directory, on which brokers can start again after `close`."""

    def __init__(self, disk: ReadDisk, stream: Holding, visible_end: int | None = None) -> None:
        self._disk = disk
        self._stream = stream
        self._seed: int | None = None
        #: The id of the stream, or None if no broker with ids has started on it yet, or if its end
        #: is uncertain.
        self.stream_id: str | None = stream.stream_id or None
        self.parts = _parts_of(stream)
        last = self.parts[-1].last + 1 if self.parts else 0
        #: The end for readers.  Messages after it belong to a batch that is being released.
        self.latest = max(int(stream.next_sequence), last)
        if visible_end is not None:
            self.latest = min(self.latest, visible_end)
        first = self.parts[0].first if self.parts else self.latest
        self.earliest = max(int(stream.first_offset), first)

    def close(self) -> None:
        """Release the directory."""
        self._disk.close()

    def chunk(self, part: StoredRange) -> bytes:
        """Return a part as a chunk, with other copies of damaged messages if there are any."""
        if part.place is not None:
            seed = identify(self._disk).seed or 0 if self._seed is None else self._seed
            self._seed = seed
            return read_best(self._disk, seed, self._stream.queue_id, part.place, 0).data
        builder = ChunkBuilder(self._stream.queue_id, True)
        for offset in range(part.first, part.last + 1):
            held = self._stream.messages.get(offset)
            if held is not None and held.message is not None:
                builder.add(offset, held.message)
        return builder.build()

    def reaches(self, part: StoredRange, timestamp_ms: int) -> bool:
        """Return whether a part may contain a message received at or after a time."""
        newest = self._of_header(part, _MAX_TIMESTAMP)
        return newest is None or newest >= timestamp_ms

    def begins_before(self, part: StoredRange, timestamp_ms: int) -> bool:
        """Return whether a part may contain a message received before a time."""
        oldest = self._of_header(part, _MIN_TIMESTAMP)
        return oldest is None or oldest < timestamp_ms

    def _of_header(self, part: StoredRange, where: slice) -> int | None:
        """Return a number from a part's chunk header, or None if the part is in the journal."""
        if part.place is None:
            return None
        head = self._read(part.place, CHUNK_HEADER_BYTES)
        return int.from_bytes(head[where], "little", signed=True)

    def _read(self, place: ChunkRef, size: int) -> bytes:
        """Return the readable part of a chunk's first bytes."""
        try:
            file = self._disk.open(segment_path(int(place.file_number)))
        except StorageFailure:
            return b""
        try:
            return read_what_can_be(file, place.position, size)
        finally:
            file.close()


def _parts_of(stream: Holding) -> list[StoredRange]:
    """Return the parts of a stream in order; each offset is in one part only."""
    places = sorted(stream.chunks.values(), key=lambda place: int(place.first))
    parts: list[StoredRange] = []
    for place in places:
        if place.last >= stream.first_offset and (not parts or place.first > parts[-1].last):
            parts.append(StoredRange(int(place.first), int(place.last), place))
    spans = [-1, *(edge for part in parts for edge in (part.first, part.last)), 2**63]
    offsets = sorted(int(o) for o in stream.messages if o >= stream.first_offset)
    # Between the chunks: from the end of each to the beginning of the next.
    for end, begin in zip(spans[::2], spans[1::2], strict=True):
        run = offsets[bisect_right(offsets, end) : bisect_left(offsets, begin)]
        parts += [StoredRange(piece[0], piece[-1]) for piece in _runs(run)]
    return sorted(parts, key=lambda part: part.first)


def _runs(offsets: list[int]) -> Iterator[list[int]]:
    """Yield runs of consecutive offsets, each at most as long as a chunk."""
    if not offsets:
        return
    breaks = [place for place, (a, b) in enumerate(pairwise(offsets), 1) if b != a + 1]
    for start, end in pairwise([0, *breaks, len(offsets)]):
        for first in range(start, end, CHUNK_RECORDS_MAX):
            yield offsets[first : min(end, first + CHUNK_RECORDS_MAX)]


# -- a directory -----------------------------------------------------------------------------------

#: For each directory, its signature when it was read, its streams, and `_opened`'s ends.
_known_holdings: dict[str, tuple[Signature, list[Holding], dict[int, int]]] = {}
_lock = threading.Lock()


def stream_names(options: Options) -> list[str]:
    """Return the names of all streams of the vhost.  Raises: OptionError."""
    disk, holdings, _ = _opened(options)
    disk.close()
    return [stream.name for stream in holdings if stream.vhost == options.file_vhost]


def open_stream(options: Options, name: str) -> StoredStream:
    """Return a stream of the directory.  Raises: NotFound (404); OptionError."""
    disk, holdings, ends = _opened(options)
    for stream in holdings:
        if stream.name == name and stream.vhost == options.file_vhost:
            return StoredStream(disk, stream, ends.get(int(stream.queue_id)))
    disk.close()
    raise NotFound(f"no stream '{name}' in vhost '{options.file_vhost}' of {options.directory}")


def _opened(options: Options) -> tuple[ReadDisk, list[Holding], dict[int, int]]:
    """Lock a directory; return it, its streams, and the readers' ends of some streams by id.

    Raises: OptionError.
    """
    directory = options.directory
    assert directory is not None
    disk = None
    try:
        disk = ReadDisk(directory)
        disk.lock(LOCK_PATH)
        return disk, *_streams_of(disk, directory)
    except DiskLocked as locked:
        what = "a broker runs on it" + (f" (process {locked.pid})" if locked.pid else "")
        what += "; read from the broker, or from a backup"
    except (StorageFailure, UnknownFormat) as failure:
        what = str(failure)
    if disk is not None:
        disk.close()
    raise OptionError(f"option 'uri': {directory} cannot be read: {what}")


def _streams_of(disk: ReadDisk, directory: str) -> tuple[list[Holding], dict[int, int]]:
    with _lock:
        signature = _signature(disk)
        known = _known_holdings.get(directory)
        if known is None or known[0] != signature:
            survey = Survey(disk, True)
            for _ in survey.replay():
                pass
            streams = [one for one in survey.holdings.living() if one.type == "stream"]
            ends: dict[int, int] = {}
            for _, start in survey.holdings.catalog.all_of(BATCH_START):
                queue_id, offset = number(start, "id"), number(start, "offset")
                ends[queue_id] = min(ends.get(queue_id, offset), offset)
            known = _known_holdings[directory] = signature, streams, ends
        return known[1:]


def _signature(disk: ReadDisk) -> Signature:
    """Return a value that changes when the journal or the snapshots change."""
    found = []
    for folder in (STATE_DIR, JOURNAL_DIR):
        for name in disk.list(folder):
            file = disk.open(f"{folder}/{name}")
            found.append((f"{folder}/{name}", file.size()))
            file.close()
    return tuple(sorted(found))
