"""The spool: messages taken from a queue, on disk under numbers of their own until Spark has them.

    spool.json                                      whose it is; a new one has a new id
    position                                        messages below it are in committed batches
    lock                                            held by the one query that writes
    <start>-<end>-<bytes>-<digest>-<kind>.arrow     a segment: one record batch

A number is a message's place in the spool; numbers follow each other without gap.  A segment's kind
is `lent` while its messages are the queue's still (unacked, so that they come again), `taken` once
the spool alone answers for them.

Not here: brokers, acks, and what a row looks like (`queue.rows`).

Invariants: a segment is seen whole or not at all (written aside, synced, renamed, and the
directory synced); its bytes never change and its name holds their digest, so that damage is told;
only what is lent is cut off at the end, only what is committed is removed at the start.
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

IDENTITY: Final = "spool.json"
POSITION: Final = "position"
LOCK: Final = "lock"
ASIDE: Final = ".tmp"

#: How long a query waits for the one before it, which may be ending, to let go of the spool.
LOCK_SECONDS_MAX: Final = 15.0
LOCK_PAUSE_SECONDS: Final = 0.1

VERSION: Final = 1

_NAME: Final = re.compile(r"(\d{20})-(\d{20})-(\d+)-([0-9a-f]{16})-(lent|taken)\.arrow")

log = logging.getLogger("leveret.spark")


class SpoolError(RuntimeError):
    """A spool that cannot be used: another's, in use, out of sight, or damaged."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of messages `start` up to, not including, `end`; `size` is that of their bodies."""

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
    """Return what a file's name says; None when it is no segment's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    start, end, size, digest, kind = found.groups()
    return Segment(int(start), int(end), int(size), digest, kind == "lent")


class Spool:
    """The driver's side: one writer, which holds the lock until `close`."""

    def __init__(
        self, directory: str, queue: str, vhost: str, lock_seconds: float = LOCK_SECONDS_MAX
    ) -> None:
        """Open a spool, or make it, as soon as nobody else has it.  Raises: SpoolError; OSError."""
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
        """Let go of the lock; all that is written stays."""
        os.close(self._lock)

    # -- what it holds -----------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What is there, in order."""
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
        """Return the segments that hold numbers of a range."""
        return tuple(s for s in self._segments if s.start < end and start < s.end)

    def limit(self, start: int, records: int | None, size: int | None) -> int:
        """Return where a batch from `start` ends that holds so many messages and bytes at most.

        Bytes are counted by segments; the batch holds one of them at least.
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
        """Write messages behind the last; they are on the disk when it returns.  Raises: OSError.

        `size` is that of their bodies.
        """
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
        """Count on from a number that lies behind the end.  Raises: OSError."""
        assert number > self.end
        self._commit(number)
        while self._segments:
            (self.directory / self._segments.pop(0).name).unlink()

    def cut(self, number: int) -> int:
        """Drop what is lent from a number on: it comes again.  Return how many messages went.

        What is committed, or was taken, stays.  Raises: OSError.
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
        """Answer for everything that is lent: it may then be acked.  Raises: OSError."""
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
        """Note that what lies below a number is in committed batches.

        The segments of the batch before go.  Those of the newest stay until the next: Spark does
        not sync its checkpoint, so that a power cut may take back its newest entry.

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
        """Put a whole file in its place, durably."""
        aside = self.directory / (name + ASIDE)
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(self.directory / name)
        self._sync()

    def _sync(self) -> None:
        """Have the directory's names on the disk."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # -- opening -----------------------------------------------------------------------------------

    def _identify(self, queue: str, vhost: str) -> str:
        """Return the spool's id.  Raises: SpoolError when it is another queue's."""
        path = self.directory / IDENTITY
        owner = {"queue": queue, "vhost": vhost}
        if not path.exists():
            strangers = [p.name for p in self.directory.iterdir() if p.name != LOCK]
            if any(not name.endswith(ASIDE) for name in strangers):
                raise SpoolError(f"{self.directory} holds other files: a spool needs its own place")
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
        """Return the segments that are there, and remove what was never finished."""
        found = []
        for path in self.directory.iterdir():
            segment = parse_name(path.name)
            if segment is not None:
                found.append(segment)
            elif path.name.endswith(ASIDE):
                path.unlink()
        return sorted(found, key=lambda segment: segment.start)


def _locked(path: Path, seconds: float) -> int:
    """Return a descriptor that holds the lock.  Raises: SpoolError when another query keeps it."""
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
    """Return whose a spool is.  Raises: SpoolError; FileNotFoundError when none is there."""
    try:
        identity = json.loads((directory / IDENTITY).read_bytes())
    except ValueError:
        raise SpoolError(f"{directory / IDENTITY} is damaged") from None
    if not isinstance(identity, dict) or identity.get("version") != VERSION:
        raise SpoolError(f"{directory / IDENTITY} is not of a spool that this version reads")
    return identity


def check_sight(directory: Path, spool: str, host: str) -> None:
    """Check that a task sees the driver's spool.  Raises: SpoolError."""
    try:
        seen = read_identity(directory)["id"]
    except OSError as error:
        raise SpoolError(
            f"the spool {directory} cannot be seen on {host} ({error.strerror}): on a cluster "
            "spoolDir must lie on storage that the driver and every executor share, under one "
            "path. Nothing was acknowledged that the spool does not hold."
        ) from None
    if seen != spool:
        raise SpoolError(
            f"{directory} on {host} is another spool ({seen}) than the driver's ({spool}): "
            "spoolDir must be one shared directory"
        )


def read_segment(directory: Path, segment: Segment) -> pa.RecordBatch:
    """Return a segment's messages.  Raises: SpoolError when damaged; FileNotFoundError."""
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
