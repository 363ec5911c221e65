"""The opening of a channel, and what a client is told then of the one that it lost.

See `leveret.wire.content.publish_marks` for the words of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.limits import FRAME_OVERHEAD_BYTES
from leveret.session.client_session import ClientWork
from leveret.wire.content.publish_marks import encode_marks, read_channel_key
from leveret.wire.methods import ChannelOpen, ChannelOpenOk

if TYPE_CHECKING:
    from leveret.broker.node.publish_sessions import ChannelProgress
    from leveret.session.channel.channel import Channel
    from leveret.session.connection_base import ConnectionBase

#: The numbers of the method and the length of its string.
_METHOD_BYTES: Final = 8


def open_channel(connection: ConnectionBase, channel: Channel, method: ChannelOpen) -> None:
    """Answer the opening of a channel, with what became of the publishes of a lost one."""
    session = connection.publish_session
    if session is not None and method.key:
        key, before = read_channel_key(method.key)
        progress = session.open(key, before)
        known = session.known(before)
        if progress is not None:
            channel.confirms.follow(progress)
            if known is not None:
                connection.perform(Opening(connection, channel, known))
                return
    connection.send(channel.number, ChannelOpenOk())


@final
class Opening(ClientWork):
    """Answers when nothing of the lost channel is under way any more."""

    def __init__(
        self, connection: ConnectionBase, channel: Channel, known: ChannelProgress
    ) -> None:
        super().__init__(connection)
        self._connection = connection
        self._channel = channel
        self._known = known

    def advance(self, last: i64) -> bool:
        """Return whether a publish of the lost channel still comes to its queues."""
        return self._known.busy

    def reply(self) -> None:
        """Tell the client how far the lost channel came, when that is durable."""
        connection = self._connection
        if not connection.awaits_reply() or self._channel.closing:
            return
        frame_max = int(connection.frame_bytes_max) or 0x7FFF_FFFF
        room = frame_max - FRAME_OVERHEAD_BYTES - _METHOD_BYTES
        turn = connection.turn
        turn.reply_group = turn.journal.last_group
        connection.reply(
            self._channel.number, ChannelOpenOk(encode_marks(self._known.marks(), room))
        )
