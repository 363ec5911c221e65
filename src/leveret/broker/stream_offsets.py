"""How far the named consumers of a stream have come: what they begin with the next time.

A name's offset is that of the first message which is not done.  It moves with every ack, and what
it came to is journaled by one record a name at most every `STREAM_OFFSETS_MS`, and when a consumer
ends: never by one for each message.  So a crash may bring back what was acked in the last moment.

Who reads under which name is `stream_group`.

Invariants: `stored` is what the journal was told; no offset lies behind a message that nobody
acked or rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.source import NOTHING
from leveret.broker.timers import NO_DEADLINE, Timed
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import STREAM_OFFSET_NAMES_MAX, STREAM_OFFSETS_MS
from leveret.names import check_new
from leveret.store.record import FORGOTTEN

if TYPE_CHECKING:
    from leveret.broker.stream import Stream
    from leveret.broker.stream_group import StreamGroup


@final
class StreamOffsets(Timed):
    """The stored offsets of one stream, and those who move them."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.stream: Final = stream
        #: By the consumers' name, as the journal has it.
        self.stored: dict[str, int] = {}
        #: Who reads now, or has deliveries that are not settled.
        self.groups: dict[str, StreamGroup] = {}
        #: Groups that may have come further than is stored.
        self._moved: dict[str, StreamGroup] = {}

    def get(self, name: str) -> i64:
        """Return the offset stored for `name`, or NOTHING."""
        return self.stored.get(name, NOTHING)

    def store(self, name: str, offset: i64) -> None:
        """Journal that `name` has come to `offset`, unless that is known.

        One ahead of the stream is nothing that anybody has come to: a restart takes none back.
        """
        if self.stored.get(name, NOTHING) == offset or offset > self.stream.next_offset:
            return
        self.stream.turn.journal.consumer_offset(self.stream.queue_id, name.encode(), offset)
        self.stored[name] = int(offset)

    def check_room(self, name: str) -> None:
        """Check that an offset may be stored for `name`.  Raises: PreconditionFailed (406)."""
        if name not in self.stored and name not in self.groups:
            check_new(name, "consumer of a stream")
        if name not in self.stored and len(self.stored) >= STREAM_OFFSET_NAMES_MAX:
            raise PreconditionFailed(
                f"a stream keeps the offsets of at most {STREAM_OFFSET_NAMES_MAX} names"
            )

    # -- in batches -------------------------------------------------------------------------------

    def note(self, group: StreamGroup) -> None:
        """Have what `group` has come to journaled before long."""
        self._moved[group.reader_name] = group
        if self.deadline_ms == NO_DEADLINE:
            turn = self.stream.turn
            turn.timers.set(self, turn.now_ms + STREAM_OFFSETS_MS)

    def due(self, now_ms: i64) -> None:
        """Journal what has moved since the last time."""
        moved = self._moved
        self._moved = {}
        for group in moved.values():
            group.store()

    def end(self, group: StreamGroup) -> None:
        """Know `group` no more: it has stored what it came to, and nobody reads in it."""
        if self.groups.get(group.reader_name) is group:
            del self.groups[group.reader_name]
        self._moved.pop(group.reader_name, None)

    def drop(self) -> None:
        """Let go of all because the stream is deleted."""
        self.stream.turn.timers.cancel(self)
        for group in self.groups.values():
            group.deleted = True
            group.consumers.clear()
        self.groups.clear()
        self._moved.clear()
        self.stored.clear()

    # -- by an operator ---------------------------------------------------------------------------

    def set(self, name: str, offset: i64) -> None:
        """Let `name` begin at `offset` the next time.

        Raises: PreconditionFailed (406) while somebody reads under that name, for a name that
        cannot be one, for one too many, or for an offset ahead of the stream.
        """
        self._check_unused(name)
        end = self.stream.next_offset
        if offset > end:
            raise PreconditionFailed(
                f"the offset {int(offset)} is ahead of stream '{self.stream.name}', which ends at "
                f"{int(end)}: use a number up to that, or 'next'"
            )
        self.check_room(name)
        self.store(name, offset)

    def forget(self, name: str) -> None:
        """Forget `name`.

        Raises: NotFound (404); PreconditionFailed (406) while somebody reads under that name.
        """
        self._check_unused(name)
        stream = self.stream
        if name not in self.stored:
            raise NotFound(f"no consumer '{name}' of stream '{stream.name}'")
        stream.turn.changes += 1
        del self.stored[name]
        stream.turn.journal.consumer_offset(stream.queue_id, name.encode(), FORGOTTEN)

    def _check_unused(self, name: str) -> None:
        check_reader_name(name, f"stream '{self.stream.name}'")
        if name in self.groups:
            raise PreconditionFailed(
                f"consumer '{name}' of stream '{self.stream.name}' in use: end its consumers first"
            )

    # -- after a restart --------------------------------------------------------------------------

    def restore(self, offsets: dict[bytes, int]) -> None:
        """Take what snapshot and journal told.

        None is ahead of the stream: where damage took its newest messages, their offsets are given
        once more, and would be missed.
        """
        end: i64 = self.stream.next_offset
        for name, offset in offsets.items():
            self.stored[name.decode("utf-8", "replace")] = int(min(offset, end))


def check_reader_name(name: object, where: str) -> str:
    """Return a name under which an offset can be stored.  Raises: PreconditionFailed (406)."""
    if isinstance(name, str) and 0 < len(name.encode("utf-8", "surrogateescape")) <= 255:
        try:
            name.encode()
        except UnicodeEncodeError:
            pass
        else:
            return name
    raise PreconditionFailed(f"invalid arg 'x-stream-consumer' for {where}: 1 to 255 bytes of text")
