"""The scan of a journal file, which finds its intact records in order, and its damage.

This module only parses bytes.  `recovery.py` applies records and evaluates damage.

Damage is skipped with the smallest possible loss:

- If a record's digest does not match, but its size and those after it lead to the group's end, only
  that record is lost.
- If a record's size is damaged, all other values of each of its four bytes are tried.  If the
  digest matches with one of them, nothing is lost.
- Otherwise the rest of the group is lost.
- If a group's header is damaged, its records can be checked without it, because their seed depends
  on the group's number, which is one more than the previous group's.
- Otherwise all data up to the next intact header, which is found by its magic, is lost.

Zeros up to the end of the file are not damage, because they were written ahead of the groups.

Invariants: only bytes that a digest covers are returned.  Groups are returned in ascending order.
A record that belongs to another group, file or store is damage.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.store.damage import Damage
from leveret.store.records.record import (
    ANY_GROUP_MAGIC,
    DIGEST_BYTES,
    GROUP_HEADER_BYTES,
    OLD_GROUP_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    group_header_bytes,
    is_kind,
    is_record,
    repaired_size,
)
from leveret.wire.buffer import read_i32_le, read_i64_le


@final
class JournalScan:
    """A scan over the bytes of one journal file.

    After `next` returns True, a record of `kind` in `group` has its payload in `data` from `start`
    to `end`.  `time_ms` is the time in the last intact header, or 0 if it has none.  `durable` is
    the newest durable group according to the headers.  `damages` lists the damage so far.
    `garbage_from` is the position of a tail without an intact header, or -1 if there is none.
    """

    def __init__(
        self, data: bytes, seed: int, path: str, file_number: i64, expected_group: i64
    ) -> None:
        self.data = data
        self.path = path
        self.kind: i64 = 0
        self.start: i64 = 0
        self.end: i64 = 0
        self.group: i64 = expected_group - 1
        self.groups: i64 = 0
        self.time_ms: i64 = 0
        self.durable: i64 = 0
        self.damages: list[Damage] = []
        self.garbage_from: i64 = -1
        self._seed = seed
        self._file_number = file_number
        self._record_seed: int = seed
        self._position: i64 = 0
        #: The end of the group according to its header, or -1 if the header is damaged.
        self._group_end: i64 = 0

    def next(self) -> bool:
        """Move to the next intact record; return False at the end of the file."""
        while True:
            if self._group_end >= 0 and self._position >= self._group_end:
                if not self._next_group():
                    return False
            elif self._next_record():
                return True

    # -- groups ------------------------------------------------------------------------------------

    def _next_group(self) -> bool:
        """Enter the group at the current position, or the next one that can be found."""
        position = self._position
        size: i64 = len(self.data)
        if position >= size:
            return False
        if self._enters(position):
            return True
        if self._is_room(position):
            self._position = size
            return False
        number: i64 = self.group + 1
        for header in (GROUP_HEADER_BYTES, OLD_GROUP_HEADER_BYTES):
            first: i64 = position + header
            if is_record(self.data, first, size, self._seed ^ int(number)):
                self._damage(position, header, "the header of a group", 0, number)
                self._enter(number, first, -1)
                return True
        found = self._find_header(position + 1)
        if found < 0:
            self.garbage_from = position
            self._damage(position, size - position, "no group to the end of the file", -1, number)
            self._position = size
            return False
        self._damage(position, found - position, "no group up to the next one", -1, number)
        return self._enters(found)

    def _is_room(self, position: i64) -> bool:
        """Return whether the file has only zeros from `position` on."""
        return self.data[position] == 0 and not self.data[position:].strip(b"\0")

    def _enters(self, position: i64) -> bool:
        """Enter the group at `position` if it has an intact header of a later group."""
        header = group_header_bytes(self.data, position, self._seed, self._file_number)
        if header == 0:
            return False
        number = read_i64_le(self.data, position + 8)
        if number <= self.group:
            return False
        if number > self.group + 1 and not self._lost_before(position):
            what = f"groups {self.group + 1} to {number - 1} are missing"
            self._damage(position, 0, what, -1, number - 1)
        self.durable = max(self.durable, read_i64_le(self.data, position + 24))
        if header == GROUP_HEADER_BYTES:
            self.time_ms = read_i64_le(self.data, position + 48)
        first: i64 = position + header
        self._enter(number, first, first + read_i64_le(self.data, position + 16))
        return True

    def _lost_before(self, position: i64) -> bool:
        """Return whether damage that ends at `position` explains missing groups."""
        return bool(self.damages) and (
            self.damages[-1].position + self.damages[-1].size == position
        )

    def _enter(self, number: i64, first: i64, end: i64) -> None:
        """Begin group `number`, whose records extend from `first` to `end`."""
        self.group = number
        self.groups += 1
        self._record_seed = self._seed ^ int(number)
        self._position = first
        self._group_end = end

    def _find_header(self, position: i64) -> i64:
        """Return the position of the next intact header of a later group, or -1."""
        found: i64 = self.data.find(ANY_GROUP_MAGIC, position)
        while found >= 0:
            if (
                group_header_bytes(self.data, found, self._seed, self._file_number) > 0
                and read_i64_le(self.data, found + 8) > self.group
            ):
                return found
            found = self.data.find(ANY_GROUP_MAGIC, found + 1)
        return -1

    # -- records -----------------------------------------------------------------------------------

    def _next_record(self) -> bool:
        """Take the record at the current position, and return whether there is an intact one."""
        position = self._position
        limit: i64 = len(self.data)
        if self._group_end >= 0:
            limit = min(limit, self._group_end)
        if is_record(self.data, position, limit, self._record_seed):
            self._take(position, i64(read_i32_le(self.data, position + DIGEST_BYTES)))
            return True
        if self._group_end < 0:
            self._group_end = position
            return False
        return self._pass_damaged_record(position, limit)

    def _take(self, position: i64, size: i64) -> None:
        """Make the record at `position` the current one."""
        self.kind = self.data[position + 12]
        self.start = position + RECORD_HEADER_BYTES
        self.end = self.start + size
        self._position = self.end

    def _pass_damaged_record(self, position: i64, limit: i64) -> bool:
        """Skip a damaged record, or repair its size; return whether it could be repaired."""
        if self._sizes_lead_to_end(position):
            size = RECORD_HEADER_BYTES + i64(read_i32_le(self.data, position + DIGEST_BYTES))
            self._damage(position, size, "a record", 1, self.group, i64(self.data[position + 12]))
            self._position = position + size
            return False
        size = repaired_size(self.data, position, limit, self._record_seed)
        if size >= 0:
            self._damage(position, RECORD_HEADER_BYTES, "the size of a record", 0, self.group)
            self._take(position, size)
            return True
        what = "the rest of a group"
        if limit < self._group_end:
            what = f"a group without its last {self._group_end - limit} bytes"
        self._damage(position, limit - position, what, -1, self.group)
        self._position = limit
        self._group_end = limit
        return False

    def _sizes_lead_to_end(self, position: i64) -> bool:
        """Return whether the size at `position`, and those after it, lead to the group's end.

        The kinds must also be known, because among zeros every thirteenth byte would match.
        """
        data = self.data
        end = self._group_end
        if end > len(data):
            return False
        while position + RECORD_HEADER_BYTES <= end:
            size = i64(read_i32_le(data, position + DIGEST_BYTES))
            if size < 0:
                return False
            position += RECORD_HEADER_BYTES + size
            if position + RECORD_HEADER_BYTES <= end and not is_kind(i64(data[position + 12])):
                return False
        return position == end

    def _damage(
        self, position: i64, size: i64, what: str, records: i64, group: i64, kind: i64 = 0
    ) -> None:
        """Add a damaged place; `records` is the number of lost records, or -1 if unknown."""
        lost = None if records < 0 else int(records)
        self.damages.append(Damage(self.path, position, size, what, lost, group, kind))
