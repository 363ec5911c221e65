"""A search for data missing in the newest snapshot, by comparison with the previous one.

A directory has two snapshots, each with the journal that follows it.  A definition or message of
the older one is also in the newer one, unless a journal record between them removes it.  A
checkpoint that continued after an exception could write a snapshot without some of them.  A start
uses only the newest snapshot, and the next checkpoint removes the older one, which is the only
evidence.

Invariants: this module does not change the disk, and does not report data as missing that may have
been removed.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.disk import Disk
from leveret.store.recovery.copies import readable_chunk
from leveret.store.segments.segments import ChunkRef
from leveret.store.survey.holdings import Holding, Holdings

#: The maximum number of definitions that are named individually; the others are counted.
_NAMED_MAX: Final = 100

#: The fields that identify a definition in descriptions.
_NAMES: Final = ("vhost", "user", "component", "name", "source", "destination", "routing_key")


@final
class Omissions:
    """The data that `earlier`, replayed up to the journal's end, has and `newest` lacks."""

    def __init__(self, disk: Disk, earlier: Holdings, newest: Holdings) -> None:
        self._disk = disk
        self._earlier = earlier
        self._newest = newest
        self._definitions = earlier.catalog.missing_in(newest.catalog)

    def adopt(self) -> None:
        """Add the missing data to the newest; missing messages are added by `found`."""
        for kind, definition in self._definitions:
            self._newest.define(kind, definition)
        for old in self._earlier.living():
            new = self._newest.of(old.queue_id)
            if new.deleted:
                continue
            for first, last in old.dead.ranges():
                new.dead.add(first, last)
            new.first_offset = max(new.first_offset, old.first_offset)
            new.took(old.next_sequence - 1)
            for consumer, offset in old.offsets.items():
                new.offsets.setdefault(consumer, offset)
            for name, (number, time_ms) in old.publishers.items():
                new.sent(name, number, time_ms)

    def found(self, kept: bool) -> list[tuple[str, int]]:
        """Return each omission's description and its number of lost records or messages.

        Call this after all chunks were read.  Adopted data (`kept`) is not lost.
        """
        found: list[tuple[str, int]] = []
        for kind, definition in self._definitions[:_NAMED_MAX]:
            found.append((f"the {kind} {_named(definition)} is missing", 0 if kept else 1))
        more = len(self._definitions) - _NAMED_MAX
        if more > 0:
            found.append((f"{more} more definitions are missing", 0 if kept else more))
        for queue in self._earlier.living():
            missing = self._missing(queue, kept)
            if missing:
                what = f"{missing} messages of {queue.title} are missing"
                found.append((what, 0 if kept else missing))
        return found

    def _missing(self, queue: Holding, kept: bool) -> int:
        """Return how many messages of a queue are missing; adopt them if `kept`."""
        new = self._newest.of(queue.queue_id)
        if new.deleted or new.lost:
            return 0
        missing: i64 = 0
        for sequence in list(queue.messages):
            if not new.is_gone(sequence) and not new.is_held(sequence):
                missing += 1
                if kept:
                    take_over(new, queue, sequence)
        for key, place in queue.chunks.items():
            if key not in new.chunks:
                missing += self._missing_in(queue, new, place, kept)
        return int(missing)

    def _missing_in(self, queue: Holding, new: Holding, place: ChunkRef, kept: bool) -> int:
        """Return how many messages of a chunk are missing, if only the older snapshot has it."""
        if queue.dead.count(place.first, place.last) == place.last - place.first + 1:
            return 0
        chunk = readable_chunk(self._disk, queue.queue_id, place)
        missing: i64 = 0
        for index in range(0 if chunk is None else int(chunk.count)):
            assert chunk is not None
            sequence = chunk.sequence(index)
            if queue.is_gone(sequence) or new.is_gone(sequence) or new.is_held(sequence):
                continue
            if not chunk.persistent(index) and not queue.keeps_transient():
                continue
            missing += 1
            if kept:
                new.add_chunk(place)
                new.found_in_chunk(sequence, 0)
        return int(missing)


def take_over(queue: Holding, old: Holding, sequence: i64) -> None:
    """Add a message of an older journal to a queue, unless it is removed or present."""
    if queue.is_gone(sequence) or queue.is_held(sequence):
        return
    queue.messages[sequence] = old.messages[sequence]
    if sequence in old.counts and sequence not in queue.counts:
        queue.counts[sequence] = old.counts[sequence]


def _named(definition: dict[str, object]) -> str:
    """Return the identity of a definition for descriptions."""
    names = [f"{field} {definition[field]!r}" for field in _NAMES if field in definition]
    return ", ".join(names)
