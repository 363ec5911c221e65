"""Snapshots of what reads a stream, for those who show it: plain values, taken at one moment.

As `stats`, of which this is the part that knows streams.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.source import NOTHING
from leveret.broker.stream import Stream
from leveret.broker.stream_group import StreamGroup


@final
class NamedReaderStats:
    """A name under which a stream is read, and who reads under it now."""

    def __init__(self, stream: Stream, name: str) -> None:
        group = stream.offsets.groups.get(name)
        stored: i64 = stream.offsets.get(name)
        self.name: Final = name
        #: What is stored; None while nothing is, because a time is looked for still.
        self.offset: Final = None if stored == NOTHING else int(stored)
        #: Messages that are not done.
        self.lag: Final = None if stored == NOTHING else int(_lag(stream, stored))
        self.consumer_count: Final = 0 if group is None else len(group.consumers)
        self.unacked_count: Final = 0 if group is None else len(group.unsettled)
        #: The consumer that gets the messages, by the name of its connection and its tag.
        self.active: Final = None if group is None else _active(group)


def _lag(stream: Stream, offset: i64) -> i64:
    return max(stream.visible_end - max(offset, stream.first_offset), 0)


def _active(group: StreamGroup) -> tuple[str, str] | None:
    for consumer in group.consumers:
        if group.turns.is_active(consumer):
            return consumer.outlet.link.name, consumer.tag
    return None


@final
class NamedReaderListing:
    """The names of one stream, in slices."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        named = {**stream.offsets.stored, **stream.offsets.groups}
        self._names = sorted(named)
        self._place = 0

    def take(self, limit: int) -> list[NamedReaderStats]:
        """Return up to `limit` more; what was forgotten meanwhile is left out."""
        found: list[NamedReaderStats] = []
        offsets = self._stream.offsets
        while len(found) < limit and self._place < len(self._names):
            name = self._names[self._place]
            self._place += 1
            if name in offsets.stored or name in offsets.groups:
                found.append(NamedReaderStats(self._stream, name))
        return found
