"""The record of a channel's publish progress, in the journal and in snapshots.

After a lost connection, a client requests its progress with its session and the channel's key, and
repeats only messages that the broker does not have (`leveret.wire.content.publish_marks`).

The record means that all publishes from `since + 1` to `through`, except `gaps`, were accepted, and
that their records in queues precede it.  If `through` is -1 the channel is forgotten; if the
channel is also -1, the whole session.

In the journal it follows all other records of its group.  It is valid only if all records before it
in its group are intact.  So a stored message may be reported as missing, but never the reverse.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.records.record import Damaged, write_string
from leveret.wire.buffer import BytesWriter, read_i64_le, write_i64_le
from leveret.wire.content.publish_marks import NACKED, RETURNED, Gap

#: The value of `through` for a forgotten channel, and of `channel` for all channels of a session.
FORGOTTEN: Final = -1

_GAP_BYTES: Final = 17


@final
class PublishProgress:
    """The contents of a record."""

    def __init__(
        self, user: bytes, session: bytes, channel: i64, since: i64, through: i64, gaps: list[Gap]
    ) -> None:
        self.user: Final = user
        self.session: Final = session
        self.channel: Final[i64] = channel
        self.since: Final[i64] = since
        self.through: Final[i64] = through
        self.gaps: Final = gaps


def write_progress(writer: BytesWriter, progress: PublishProgress) -> None:
    """Append the payload of a record."""
    write_string(writer, progress.user)
    write_string(writer, progress.session)
    write_i64_le(writer, progress.channel)
    write_i64_le(writer, progress.since)
    write_i64_le(writer, progress.through)
    for first, last, kind in progress.gaps:
        writer.append(kind)
        write_i64_le(writer, first)
        write_i64_le(writer, last)


def read_progress(data: bytes, start: i64, end: i64) -> PublishProgress:
    """Return the record with the payload `data[start:end]`.

    Raises: Damaged if the payload is invalid.
    """
    user, at = _string(data, start, end)
    session, at = _string(data, at, end)
    if at + 24 > end or (end - at - 24) % _GAP_BYTES:
        raise Damaged("a record does not have the size of its kind")
    channel = read_i64_le(data, at)
    since = read_i64_le(data, at + 8)
    through = read_i64_le(data, at + 16)
    if channel < FORGOTTEN or since < 0 or through < FORGOTTEN:
        raise Damaged("a channel's publishes have impossible numbers")
    gaps: list[Gap] = []
    for place in range(at + 24, end, _GAP_BYTES):
        kind = int(data[place])
        if kind not in (NACKED, RETURNED):
            raise Damaged("a gap in publishes has an unknown kind")
        gaps.append((int(read_i64_le(data, place + 1)), int(read_i64_le(data, place + 9)), kind))
    return PublishProgress(user, session, channel, since, through, gaps)


def _string(data: bytes, at: i64, end: i64) -> tuple[bytes, i64]:
    """Return the string at a position, and its end."""
    if at >= end or at + 1 + i64(data[at]) > end:
        raise Damaged("a name exceeds its record")
    after: i64 = at + 1 + i64(data[at])
    return data[at + 1 : after], after
