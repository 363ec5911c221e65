"""The opening of a channel, which can report on the publishes of the client's lost channel.

See `leveret.wire.content.publish_marks` for the encoding of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from leveret.broker.scheduler.task import WAIT
from leveret.limits import FRAME_OVERHEAD_BYTES
from leveret.wire.content.publish_marks import encode_marks, read_channel_key
from leveret.wire.methods import ChannelOpen, ChannelOpenOk

if TYPE_CHECKING:
    from leveret.broker.publishers.publish_sessions import ChannelProgress
    from leveret.session.channel.channel import Channel
    from leveret.session.connection_base import ConnectionBase

#: The method's ids and the length field of its string.
_METHOD_BYTES: Final = 8


def open_channel(connection: ConnectionBase, channel: Channel, method: ChannelOpen) -> None:
    """Answer channel.open, with the progress of the lost channel if the client asks for it."""
    session = connection.publish_session
    if session is not None and method.key:
        key, before = read_channel_key(method.key)
        progress = session.open(key, before)
        known = session.known(before)
        if progress is not None:
            channel.confirms.follow(progress)
            if known is not None:
                connection.start(_answer_later(connection, channel, known))
                return
    connection.send(channel.number, ChannelOpenOk())


def _answer_later(
    connection: ConnectionBase, channel: Channel, known: ChannelProgress
) -> Iterator[int]:
    """Answer once all publishes of the lost channel have reached their queues."""
    while known.busy:
        yield WAIT
    if not channel.awaits_reply():
        return
    # The answer waits until the reported progress is durable.
    frame_max = int(connection.frame_bytes_max) or 0x7FFF_FFFF
    room = frame_max - FRAME_OVERHEAD_BYTES - _METHOD_BYTES
    core = connection.core
    core.syncs.reply_group = core.journal.last_group
    connection.reply(channel.number, ChannelOpenOk(encode_marks(known.marks(), room)))
