"""The spool: messages consumed from a queue, numbered and stored on disk until Spark has read them.

    spool.json                                      its identity; a new spool has a new id
    position                                        messages below it are in committed batches
    lock                                            locked by the one query that writes
    <start>-<end>-<bytes>-<digest>-<kind>.arrow     a segment: one record batch

The messages of a spool have consecutive numbers.  A segment is `lent` while its messages are
unacked, so that the queue would deliver them again.  It is `taken` once they may be acked and the
spool alone is responsible for them.

This module does not depend on brokers, acks or the columns of a row (`queue.rows`).

Invariants: a segment is visible only when complete (it is written to a temporary file, synced and
renamed, and then the directory is synced).  Its bytes never change, and its name contains their
digest, so damage is detected.  Only lent messages are cut off at the end, and only committed ones
are removed at the start.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import xxhash

from leveret.spark.errors import SourceError

IDENTITY: Final = "spool.json"
POSITION: Final = "position"
LOCK: Final = "lock"
ASIDE: Final = ".tmp"

#: How long a query waits for the previous one, which may be ending, to release the spool.
LOCK_SECONDS_MAX: Final = 15.0
LOCK_PAUSE_SECONDS: Final = 0.1

VERSION: Final = 1

_NAME: Final = re.compile(r"(\d{20})-(\d{20})-(\d+)-([0-9a-f]{16})-(lent|taken)\.arrow")

log = logging.getLogger("leveret.spark")


class SpoolError(SourceError, RuntimeError):
    """The spool cannot be used: it is another query's, in use, not shared, or damaged."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the messages from `start` up to, but not including, `end`.

    `size` is the number of bytes in their bodies.
    """

    start: int
    end: int
    size: int
    digest: str
    lent: bool

    @property
    def name(self) -> str:
        """The file's name."""
        kind = "lent" if self.lent else "taken"
        return f"{self.start:020d}-{self.end:020d}-{self.size}-{self.digest}-{kind}.arrow"


def parse_name(name: str) -> Segment | None:
    """Parse a file's name, or return None if the file is not a segment."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    start, end, size, digest, kind = found.groups()
    return Segment(int(start), int(end), int(size), digest, kind == "lent")


class Spool:
    """The driver's access to a spool, which it locks and alone writes until `close`."""

    def __init__(
        self, directory: str, queue: str, vhost: str, lock_seconds: float = LOCK_SECONDS_MAX
    ) -> None:
        """Open or create a spool once no other query locks it.  Raises: SpoolError; OSError."""
        self.directory: Final = Path(directory)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _locked(self.directory / LOCK, lock_seconds)
        try:
            self.id: Final = self._identify(queue, vhost)
            self.committed = self._read_position()
            self._segments = self._find()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    # -- contents ----------------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The existing segments, in order."""
        return tuple(self._segments)

    @property
    def end(self) -> int:
        """The number of the next message."""
        return max(self.committed, self._segments[-1].end) if self._segments else self.committed

    @property
    def next(self) -> int:
        """The first number that is in no committed batch."""
        if not self._segments:
            return self.committed
        return max(self.committed, self._segments[0].start)

    def between(self, start: int, end: int) -> tuple[Segment, ...]:
        """Return the segments that contain messages of a range."""
        return tuple(s for s in self._segments if s.start < end and start < s.end)

    def limit(self, start: int, records: int | None, size: int | None) -> int:
        """Return the end of a batch that begins at `start`, limited by `records` and by `size`.

        Bytes are counted in whole segments, of which a batch contains at least one.
        """
        end = self.end
        if records is not None:
            end = min(end, start + records)
        if size is not None:
            total = 0
            for segment in self.between(start, end):
                total += segment.size
                if total > size and segment.start > start:
                    return segment.start
        return end

    # -- writing -----------------------------------------------------------------------------------

    def append(self, batch: pa.RecordBatch, size: int, *, lent: bool) -> None:
        """Append messages as a synced segment; `size` is that of their bodies.  Raises: OSError."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data = sink.getvalue()
        start = self.end
        digest = xxhash.xxh3_64_hexdigest(memoryview(data))
        segment = Segment(start, start + batch.num_rows, size, digest, lent)
        self._write(segment.name, memoryview(data))
        self._segments.append(segment)

    def restart(self, number: int) -> None:
        """Remove all segments, and continue with a higher number.  Raises: OSError."""
        assert number > self.end
        self._commit(number)
        while self._segments:
            (self.directory / self._segments.pop(0).name).unlink()

    def cut(self, number: int) -> int:
        """Drop lent messages from a number on, and return how many.  Raises: OSError.

        The broker delivers lent messages again.  Committed and taken messages stay.
        """
        number = max(number, self.committed)
        before = self.end
        while self._segments and self._segments[-1].lent and self._segments[-1].end > number:
            last = self._segments.pop()
            path = self.directory / last.name
            if last.start >= number:
                path.unlink()
                continue
            kept = replace(last, end=number)
            path.rename(self.directory / kept.name)
            self._segments.append(kept)
        if self.end != before:
            self._sync()
        return before - self.end

    def take(self) -> None:
        """Mark all lent messages as taken, so that they may be acked.  Raises: OSError."""
        changed = False
        for place, segment in enumerate(self._segments):
            if segment.lent:
                taken = replace(segment, lent=False)
                (self.directory / segment.name).rename(self.directory / taken.name)
                self._segments[place] = taken
                changed = True
        if changed:
            self._sync()

    def commit(self, number: int) -> None:
        """Record that the messages below a number are in committed batches.

        Segments of earlier batches are removed.  Those of the newest batch stay until the next one,
        because Spark does not sync its checkpoint and a power cut may undo its newest entry.

        Raises: OSError.
        """
        if number <= self.committed:
            return
        before = self.committed
        self._commit(number)
        while self._segments and self._segments[0].end <= before:
            (self.directory / self._segments.pop(0).name).unlink()

    def _commit(self, number: int) -> None:
        self._write(POSITION, json.dumps({"committed": number}).encode())
        self.committed = number

    def _write(self, name: str, data: bytes | memoryview) -> None:
        """Write a complete file through a temporary one, and sync it."""
        aside = self.directory / (name + ASIDE)
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(self.directory / name)
        self._sync()

    def _sync(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # -- opening -----------------------------------------------------------------------------------

    def _identify(self, queue: str, vhost: str) -> str:
        """Return the spool's id, or create one.  Raises: SpoolError if it is another queue's."""
        path = self.directory / IDENTITY
        owner = {"queue": queue, "vhost": vhost}
        if not path.exists():
            strangers = [p.name for p in self.directory.iterdir() if p.name != LOCK]
            if any(not name.endswith(ASIDE) for name in strangers):
                raise SpoolError(
                    f"{self.directory} contains other files: a spool needs its own directory"
                )
            made = {"version": VERSION, "id": secrets.token_hex(8), **owner}
            self._write(IDENTITY, json.dumps(made).encode())
        identity = read_identity(self.directory)
        if {name: identity[name] for name in owner} != owner:
            raise SpoolError(
                f"{self.directory} is the spool of queue {identity['queue']!r} in vhost "
                f"{identity['vhost']!r}, not of {queue!r} in {vhost!r}"
            )
        return str(identity["id"])

    def _read_position(self) -> int:
        path = self.directory / POSITION
        if not path.exists():
            return 0
        try:
            return int(json.loads(path.read_bytes())["committed"])
        except (ValueError, KeyError, TypeError):
            raise SpoolError(f"{path} is damaged") from None

    def _find(self) -> list[Segment]:
        """Return the existing segments, and remove unfinished files."""
        found = []
        for path in self.directory.iterdir():
            segment = parse_name(path.name)
            if segment is not None:
                found.append(segment)
            elif path.name.endswith(ASIDE):
                path.unlink()
        return sorted(found, key=lambda segment: segment.start)


def _locked(path: Path, seconds: float) -> int:
    """Return the descriptor of the locked file.  Raises: SpoolError if another query locks it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                raise SpoolError(
                    f"{path.parent} is in use by another query: each needs a spoolDir of its own"
                ) from None
            time.sleep(LOCK_PAUSE_SECONDS)
        except OSError as error:
            os.close(descriptor)
            raise SpoolError(f"{path.parent} cannot be locked: {error}") from error


# -- reading, on the executors ---------------------------------------------------------------------


def read_identity(directory: Path) -> dict[str, Any]:
    """Return the identity of a spool.  Raises: SpoolError; FileNotFoundError if there is none."""
    try:
        identity = json.loads((directory / IDENTITY).read_bytes())
    except ValueError:
        raise SpoolError(f"{directory / IDENTITY} is damaged") from None
    if not isinstance(identity, dict) or identity.get("version") != VERSION:
        raise SpoolError(f"{directory / IDENTITY} has a format that this version does not read")
    return identity


def check_sight(directory: Path, spool: str, host: str) -> None:
    """Check that a task can read the driver's spool.  Raises: SpoolError."""
    try:
        seen = read_identity(directory)["id"]
    except OSError as error:
        raise SpoolError(
            f"the spool {directory} cannot be read on {host} ({error.strerror}): on a cluster "
            "spoolDir must be on storage that the driver and every executor share, with the same "
            "path. All acknowledged messages are in the spool."
        ) from None
    if seen != spool:
        raise SpoolError(
            f"{directory} on {host} is another spool ({seen}) than the driver's ({spool}): "
            "spoolDir must be one shared directory"
        )


def read_segment(directory: Path, segment: Segment) -> pa.RecordBatch:
    """Return a segment's messages.  Raises: SpoolError if it is damaged; FileNotFoundError."""
    path = directory / segment.name
    if path.stat().st_size == 0:
        raise SpoolError(f"{path} is damaged")  # and cannot be mapped
    with pa.memory_map(str(path)) as source:
        data = source.read_buffer()
        if xxhash.xxh3_64_hexdigest(memoryview(data)) != segment.digest:
            raise SpoolError(f"{path} is damaged")
        with pa.ipc.open_file(data) as reader:
            batch = reader.get_batch(0)
    return batch.slice(0, segment.end - segment.start)
