"""The progress of the publishes on a client's channel, as recorded in the journal and a snapshot.

A client that lost its connection asks for it with its session and the channel's key, so that it
repeats only messages that the broker does not have (`leveret.wire.content.publish_marks`).

The record means: the publishes `since + 1` to `through` were all accepted, except `gaps`, and their
records in queues precede it.  With `through` = -1 the channel is forgotten, and with the channel -1
too the whole session.

In the journal it follows all other records of its group.  It is valid only if all records before it
in its group are intact: so a stored message may be reported as missing, never the reverse.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.records.record import Damaged, write_string
from leveret.wire.buffer import BytesWriter, read_i64_le, write_i64_le
from leveret.wire.content.publish_marks import NACKED, RETURNED, Gap

#: As `through`: the channel is forgotten; as the channel: all of them.
FORGOTTEN: Final = -1

_GAP_BYTES: Final = 17


@final
class PublishProgress:
    """The contents of one record."""

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
    """Return the record whose payload is `data[start:end]`.

    Raises: Damaged: the payload is invalid.
    """
    user, at = _string(data, start, end)
    session, at = _string(data, at, end)
    if at + 24 > end or (end - at - 24) % _GAP_BYTES:
        raise Damaged("a record has not the size of its kind")
    channel = read_i64_le(data, at)
    since = read_i64_le(data, at + 8)
    through = read_i64_le(data, at + 16)
    if channel < FORGOTTEN or since < 0 or through < FORGOTTEN:
        raise Damaged("a channel's publishes have numbers that cannot be")
    gaps: list[Gap] = []
    for place in range(at + 24, end, _GAP_BYTES):
        kind = int(data[place])
        if kind not in (NACKED, RETURNED):
            raise Damaged("publishes were not accepted for an unknown reason")
        gaps.append((int(read_i64_le(data, place + 1)), int(read_i64_le(data, place + 9)), kind))
    return PublishProgress(user, session, channel, since, through, gaps)


def _string(data: bytes, at: i64, end: i64) -> tuple[bytes, i64]:
    """Return the string at a position, and its end."""
    if at >= end or at + 1 + i64(data[at]) > end:
        raise Damaged("a name exceeds its record")
    after: i64 = at + 1 + i64(data[at])
    return data[at + 1 : after], after
