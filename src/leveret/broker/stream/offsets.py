"""The stored offsets of the named consumers of a stream.

A name's offset is that of the first message that is not settled, and moves with every ack.  It is
not journaled for each message, but with one record per name, at most every `STREAM_OFFSETS_MS` and
when a consumer ends.  So after a crash, recently acked messages may be delivered again.
`stream.group` has the consumers of each name.

A name belongs to the user who first read or stored with it (`ownership`), and only they can
continue with it.  A name stored by an earlier release, or by an operator of the broker, has no
owner until a user reads with it.

Invariants: `stored` has the journaled offsets; no offset is after a message that was neither acked
nor rejected; `owners` has exactly the names that are stored or in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, final

from mypy_extensions import i64

from leveret.broker.ownership import (
    MAX_STREAM_CONSUMERS,
    Owner,
    Quota,
    check_owned,
    owner_fields,
)
from leveret.broker.scheduler.accounts import MarkAccount
from leveret.broker.scheduler.costs import LOOKED_AT_PER_COST
from leveret.broker.scheduler.task import WAIT
from leveret.broker.scheduler.timers import Timed
from leveret.clock import NO_DEADLINE
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import STREAM_OFFSET_NAMES_MAX, STREAM_OFFSET_NAMES_PER_USER_MAX
from leveret.names import check_new

if TYPE_CHECKING:
    from leveret.broker.stream.group import StreamGroup
    from leveret.broker.stream.stream import Stream

#: The delay, in ms, of the record with a named consumer's acked offset.  One record per name and
#: second costs nothing, and a crash causes no more than a second of messages to be redelivered.
STREAM_OFFSETS_MS: Final = 1000

#: The memory of a stored offset in addition to the consumer's name.
_OFFSET_BYTES: Final = 280


#: The operation that transfers a name, as errors name it.
GIVE_NAME: Final = "set_stream_consumer_owner"


@final
class StreamOffsets(Timed):
    """The stored offsets of one stream, and the groups that move them."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.core: Final = stream.core
        self.name: Final = stream.name
        self.queue_id: Final[i64] = stream.queue_id
        #: None once the stream is deleted.
        self._stream: Stream | None = stream
        #: Offsets by the consumers' name, as in the journal.
        self.stored: dict[str, int] = {}
        #: The groups with consumers or with unsettled deliveries.
        self.groups: dict[str, StreamGroup] = {}
        #: The owner of each name; None for no owner.
        self.owners: dict[str, Owner | None] = {}
        #: The users to whom owners offer names.
        self.offered: dict[str, Owner] = {}
        self.quota: Final = Quota(
            stream.core.quotas.user_limits, MAX_STREAM_CONSUMERS, STREAM_OFFSET_NAMES_PER_USER_MAX
        )
        self.account: Final = MarkAccount(stream.core.accounts)
        #: Groups that may be ahead of their stored offsets.
        self._moved: dict[str, StreamGroup] = {}

    def _end(self) -> i64:
        """Return the offset after the newest message."""
        return self._stream.next_offset if self._stream is not None else 0

    def store(self, name: str, offset: i64) -> None:
        """Journal `offset` for `name`, unless it is already stored.

        An offset ahead of the stream is ignored, because no consumer can have reached it.  So a
        restart has to lower a stored offset only after damage.
        """
        stream = self._stream
        if stream is None or self.stored.get(name) == offset or offset > stream.next_offset:
            return
        if name not in self.owners:
            self._add(name, None)
        self.core.journal.consumer_offset(self.queue_id, name.encode(), offset)
        self.stored[name] = int(offset)

    # -- owners -----------------------------------------------------------------------------------

    def label(self, name: str) -> str:
        """Return a name with its kind and its stream, for errors."""
        return f"consumer name '{name}' of stream '{self.name}'"

    def check_user(self, name: str, by: Owner | None) -> None:
        """Check that `by` may read and store with `name`, and that there is room if it is new.

        Raises: AccessRefused (403) for another user's name; PreconditionFailed (406) at a limit.
        """
        if name in self.owners:
            check_owned(self.owners[name], by, self.label(name), GIVE_NAME)
            return
        check_new(name, "consumer of a stream")
        if len(self.owners) >= STREAM_OFFSET_NAMES_MAX:
            raise PreconditionFailed(
                f"a stream keeps the offsets of at most {STREAM_OFFSET_NAMES_MAX} names"
            )
        if not self.account.has_room():
            raise PreconditionFailed(
                "the share of the memory for stream consumers, publishers and keys is used up: "
                "delete unused stream consumers (leveret ctl delete_stream_consumer)"
            )
        self.check_quota(by)

    def check_quota(self, by: Owner | None) -> None:
        """Check that a user may have one more name.  Raises: PreconditionFailed (406)."""
        self.quota.check(
            by,
            f"consumer names in stream '{self.name}'",
            "delete an unused one (leveret ctl delete_stream_consumer)",
        )

    def own(self, name: str, by: Owner | None) -> None:
        """Give `name` to `by`, and journal it, if the name is new or has no owner."""
        if self.owners.get(name) is not None:
            return
        if by is not None:
            self.give(name, by)
        elif name not in self.owners:
            self._add(name, None)

    def give(self, name: str, to: Owner) -> None:
        """Give `name` to `to`, and journal it; cancel other users' consumers with that name."""
        self.core.scheduler.changes += 1
        record = consumer_record(self.queue_id, name, to)
        self.core.journal.define("stream_consumer", record)
        self._drop_owner(name)
        self._add(name, to)
        group = self.groups.get(name)
        if group is not None:
            group.end_others(to)

    def _add(self, name: str, owner: Owner | None) -> None:
        self.owners[name] = owner
        self.account.book(_memory(name))
        self.quota.add(owner)

    def _drop_owner(self, name: str) -> None:
        """Forget the owner of `name`."""
        if name in self.owners:
            self.account.book(-_memory(name))
            self.quota.remove(self.owners.pop(name))
        self.offered.pop(name, None)

    # -- in batches -------------------------------------------------------------------------------

    def note(self, group: StreamGroup) -> None:
        """Journal the offset of `group` within `STREAM_OFFSETS_MS`."""
        self._moved[group.reader_name] = group
        if self.deadline_ms == NO_DEADLINE:
            core = self.core
            core.timers.set(self, core.now_ms + STREAM_OFFSETS_MS)

    def due(self, now_ms: i64) -> None:
        """Journal the offsets that have moved since the last time."""
        moved = self._moved
        self._moved = {}
        self.core.scheduler.start(self._store_all(moved))

    def _store_all(self, moved: dict[str, StreamGroup]) -> Iterator[int]:
        if len(moved) > 1:
            # The offsets of many streams may be due together.
            yield WAIT
        while moved:
            name, group = moved.popitem()
            # A group that ended has stored its offset, and the name may have been moved since.
            if self.groups.get(name) is group:
                group.store()
            yield 1

    def end(self, group: StreamGroup) -> None:
        """Forget `group`, which has stored its offset and has no consumer."""
        if self.groups.get(group.reader_name) is group:
            del self.groups[group.reader_name]
            if group.reader_name not in self.stored:
                self._drop_owner(group.reader_name)
        self._moved.pop(group.reader_name, None)

    def drop(self) -> list[StreamGroup]:
        """Forget everything, because the stream is deleted; return the groups to be dropped."""
        core = self.core
        core.timers.cancel(self)
        groups = list(self.groups.values())
        core.scheduler.spent += len(groups) // LOOKED_AT_PER_COST
        for group in groups:
            group.deleted = True
        tables: list[dict[str, Any]] = [
            self.groups, self._moved, self.stored, self.owners, self.offered,
        ]  # fmt: skip
        self.groups = {}
        self._moved = {}
        self.stored = {}
        self.owners = {}
        self.offered = {}
        for table in tables:
            core.memory.free_table_later(table)
        self.account.end()
        self.quota.clear()
        self._stream = None
        return groups

    # -- by an operator ---------------------------------------------------------------------------

    def set(self, name: str, offset: i64, by: Owner | None = None) -> None:
        """Set the offset at which `name` begins next time; a new name belongs to `by`, if given.

        Raises: PreconditionFailed (406) while the name is in use, for an invalid name, at a limit,
        or for an offset ahead of the stream.
        """
        self._check_unused(name)
        end = self._end()
        if offset > end:
            raise PreconditionFailed(
                f"the offset {int(offset)} is ahead of stream '{self.name}', which ends at "
                f"{int(end)}: use a number up to that, or 'next'"
            )
        if name not in self.owners:
            self.check_user(name, by)
            self.own(name, by)
        self.store(name, offset)

    def forget(self, name: str) -> None:
        """Forget `name`.

        Raises: NotFound (404); PreconditionFailed (406) while the name is in use.
        """
        self._check_unused(name)
        if name not in self.stored:
            raise NotFound(f"no consumer '{name}' of stream '{self.name}'")
        self.core.scheduler.changes += 1
        del self.stored[name]
        self._drop_owner(name)
        self.core.journal.forget_consumer(self.queue_id, name.encode())

    def _check_unused(self, name: str) -> None:
        check_reader_name(name, f"stream '{self.name}'")
        if name in self.groups:
            raise PreconditionFailed(
                f"consumer '{name}' of stream '{self.name}' in use: end its consumers first"
            )

    # -- after a restart --------------------------------------------------------------------------

    def restore(self, offsets: dict[bytes, int], owners: dict[bytes, Owner]) -> None:
        """Restore names from snapshot and journal; names without an offset are dropped.

        Offsets ahead of the stream are lowered to its end.  If damage destroyed the newest
        messages, new ones get their offsets, and the consumer would miss them otherwise.
        """
        end = self._end()
        for name, offset in offsets.items():
            text = name.decode("utf-8", "replace")
            self.stored[text] = int(min(offset, end))
            self._drop_owner(text)
            self._add(text, owners.get(name))


def consumer_record(queue_id: i64, name: str, owner: Owner) -> dict[str, object]:
    """Return the record of the owner of a stream's consumer name."""
    return {"id": int(queue_id), "name": name.encode(), **owner_fields(owner)}


def _memory(name: str) -> i64:
    """Return the memory for a name with its offset and its owner."""
    return _OFFSET_BYTES + len(name)


def check_reader_name(name: object, where: str) -> str:
    """Return a name that can have a stored offset.  Raises: PreconditionFailed (406)."""
    if isinstance(name, str) and 0 < len(name.encode("utf-8", "surrogateescape")) <= 255:
        try:
            name.encode()
        except UnicodeEncodeError:
            pass
        else:
            return name
    raise PreconditionFailed(
        f"invalid arg 'x-stream-consumer' for {where}: must be 1 to 255 bytes of text"
    )
