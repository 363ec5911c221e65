"""A stream's retention, which finds the segments at its front that are too many or too old.

`Stream.retain` drops them.

A segment is a run of blocks that reach `x-stream-max-segment-size-bytes`; without that argument
each block is a segment.  The sizes of files do not depend on that argument.

Invariants: messages that are not synced stay, and so does the newest segment, because a reader
learns the end of the stream from it.  Segments of a given size are counted from the front, so the
same messages make the same segments after a restart.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import age_seconds, int_argument
from leveret.broker.stream.block import StreamBlock

#: Blocks of a stream that retention examines before other work runs, 0.1 µs each.  A limit that is
#: set later on a stream of 100 GB drops 400,000 of them; retention runs again each second.
MEASURED_AT_ONCE: Final = 16_384


@final
class Retention:
    """The retention of one stream."""

    def __init__(self) -> None:
        #: A negative value means no limit.
        self.bytes_max: i64 = -1
        self.age_ms_max: i64 = -1
        self.segment_bytes: i64 = 0
        #: The number of blocks and bytes measured in the first segment, and its newest timestamp.
        self._count: i64 = 0
        self._size: i64 = 0
        self._timestamp_max: i64 = 0
        #: After `over`: the bytes of the blocks that it returned, and the number of blocks
        #: measured.
        self.over_bytes: i64 = 0
        self.looked: i64 = 0

    def configure(self, merged: dict[str, object]) -> None:
        """Apply the arguments of the stream, merged with its policies."""
        self.bytes_max = int_argument(merged, "x-max-length-bytes")
        self.segment_bytes = int_argument(merged, "x-stream-max-segment-size-bytes")
        age = merged.get("x-max-age")
        self.age_ms_max = age_seconds(age) * 1000 if isinstance(age, str) else -1
        self._begin()

    def _begin(self) -> None:
        """Begin to measure the first segment."""
        self._count = 0
        self._size = 0
        self._timestamp_max = 0

    def closes(self, last: StreamBlock, now_ms: i64) -> bool:
        """Return whether the newest block must be closed, because its first message is too old.

        So even if there are few messages, each stays for at most twice the age once others arrive.
        """
        messages = last.messages
        if self.age_ms_max < 0 or not messages:
            return False
        first = messages[0]
        return first is not None and first.timestamp_ms < now_ms - self.age_ms_max

    def over(self, blocks: list[StreamBlock], size: i64, visible_end: i64, now_ms: i64) -> i64:
        """Return the number of blocks to remove from the front of a stream of `size` bytes.

        A call measures at most `MEASURED_AT_ONCE` blocks, and sets `looked` and `over_bytes`.  If
        very many blocks must be removed, each call returns some of them.  A segment of very many
        blocks is removed after all of it was measured.
        """
        self.over_bytes = 0
        self.looked = 0
        if self.bytes_max < 0 and self.age_ms_max < 0:
            return 0
        dropped: i64 = 0
        places: i64 = len(blocks) - (2 if blocks[-1].count == 0 else 1)
        oldest: i64 = now_ms - self.age_ms_max
        while dropped < places:
            too_long = self.bytes_max >= 0 and size > self.bytes_max
            if not too_long and (self.age_ms_max < 0 or blocks[dropped].timestamp_max >= oldest):
                break
            if not self._measure(blocks, dropped, places, visible_end):
                break
            if not too_long and self._timestamp_max >= oldest:
                break
            size -= self._size
            self.over_bytes += self._size
            dropped += self._count
            self._begin()
        return dropped

    def _measure(
        self, blocks: list[StreamBlock], start: i64, places: i64, visible_end: i64
    ) -> bool:
        """Measure the segment at `start`; return whether it is complete, visible and measured."""
        while self._count == 0 or self._size < self.segment_bytes:
            place = start + self._count
            if self.looked >= MEASURED_AT_ONCE:
                return False
            if place >= places or blocks[place].end > visible_end:
                return False
            block = blocks[place]
            self._size += block.size
            self._timestamp_max = max(self._timestamp_max, block.timestamp_max)
            self._count += 1
            self.looked += 1
        return True
