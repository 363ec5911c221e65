"""Super streams over AMQP: the methods of queues, where the name is that of a super stream.

A queue of that name would come first, but there is none: each is refused while the other is there.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.admin.super_stream import (
    PARTITIONS,
    find_super_stream,
    partitions_of,
    super_stream_label,
    waiting_in,
)
from leveret.broker.admin.super_stream_declare import SuperStreamDeclare
from leveret.broker.admin.super_stream_delete import SuperStreamDelete
from leveret.broker.stream.stream import Stream
from leveret.errors import AmqpError, NotFound, PreconditionFailed
from leveret.names import Name
from leveret.session.channel.channel import Channel
from leveret.session.client_session import ClientWork
from leveret.session.states import HALT_WORK
from leveret.wire.methods import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk


def is_super_name(channel: Channel, name: Name) -> bool:
    """Return whether a name is that of a super stream, and of no queue."""
    vhost = channel.vhost
    return name not in vhost.queues.by_name and find_super_stream(vhost, name) is not None


def declare_super(channel: Channel, name: Name, method: QueueDeclare) -> None:
    """Declare a super stream, or (passive) say what it holds.

    Raises: AccessRefused (403); PreconditionFailed (406).
    """
    if method.passive:
        channel.connection.access.see("exchange", name)
        _answer(channel, name, method)
    else:
        channel.connection.perform(_Declaring(channel, name, method, _declare_of(channel, method)))


def _declare_of(channel: Channel, method: QueueDeclare) -> SuperStreamDeclare:
    """Return the declare that a method asks for.

    Raises: AccessRefused (403); PreconditionFailed (406).
    """
    connection = channel.connection
    where = super_stream_label(channel.vhost, method.queue)
    if PARTITIONS not in method.arguments:
        raise PreconditionFailed(f"there is a {where}, and it is no queue")
    if method.exclusive or method.auto_delete or not method.durable:
        raise PreconditionFailed(f"a {where} is durable, not exclusive and not auto-delete")
    return SuperStreamDeclare(
        channel.vhost, method.queue, method.arguments, connection.access, connection.as_owner
    )


def _answer(channel: Channel, name: Name, method: QueueDeclare) -> None:
    """Say what a super stream holds."""
    channel.name_queue(name)
    if method.no_wait:
        return
    streams = _streams(channel, name)
    consumers = 0
    for stream in streams:
        consumers += len(stream.consumers)
    channel.connection.reply(
        channel.number, QueueDeclareOk(name, int(waiting_in(streams)), consumers)
    )


class SuperStreamWork(ClientWork):
    """What a client asks of a super stream, slice after slice.

    What cannot be closes the channel at the end.
    """

    def __init__(self, channel: Channel, class_id: int, method_id: int) -> None:
        """`class_id` and `method_id` are those of the request, which the error names."""
        super().__init__(channel.connection)
        self.channel: Final = channel
        self._class_id: Final = class_id
        self._method_id: Final = method_id
        self._error: AmqpError | None = None

    def advance(self, last: i64) -> bool:
        """Do more of it."""
        try:
            return self.go_on(last)
        except AmqpError as error:
            self._error = error
            return False

    @abstractmethod
    def go_on(self, last: i64) -> bool:
        """Go on until `Turn.steps` is at `last`; return whether some is left.

        Raises: what closes the channel.
        """

    def is_awaited(self) -> bool:
        """Return whether there is still somebody to answer."""
        return self.session.awaits_reply() and not self.channel.closing

    def ended(self) -> None:
        """Answer, and parse on, or close the channel before."""
        error = self._error
        if error is None:
            super().ended()
            return
        self.over = True
        channel = self.channel
        connection = channel.connection
        waited = connection.halted & HALT_WORK != 0
        connection.work = None
        connection.end_halt(HALT_WORK)
        if self.is_awaited():
            error.class_id = self._class_id
            error.method_id = self._method_id
            connection.fail_channel(channel.number, error)
        # The end of the channel may be long, too.
        if waited and connection.halted & HALT_WORK == 0:
            connection.resume(HALT_WORK)


@final
class _Declaring(SuperStreamWork):
    """A declare by a client."""

    def __init__(
        self, channel: Channel, name: Name, method: QueueDeclare, declare: SuperStreamDeclare
    ) -> None:
        super().__init__(channel, QueueDeclare.CLASS_ID, QueueDeclare.METHOD_ID)
        self._name = name
        self._method = method
        self._declare = declare

    def go_on(self, last: i64) -> bool:
        """Declare more of it.  Raises: as `SuperStreamDeclare.advance`."""
        return self._declare.advance(last)

    def reply(self) -> None:
        """Answer the client."""
        if self.is_awaited():
            _answer(self.channel, self._name, self._method)


def delete_super(channel: Channel, name: Name, method: QueueDelete) -> None:
    """Delete a super stream, and say how many messages it held.

    Raises: AccessRefused (403); PreconditionFailed (406) when in use or not empty.
    """
    access = channel.connection.access
    delete = SuperStreamDelete(channel.vhost, name, method.if_unused, method.if_empty, access)
    channel.connection.perform(_Deleting(channel, method, delete))


@final
class _Deleting(SuperStreamWork):
    """A delete by a client."""

    def __init__(self, channel: Channel, method: QueueDelete, delete: SuperStreamDelete) -> None:
        super().__init__(channel, QueueDelete.CLASS_ID, QueueDelete.METHOD_ID)
        self._method = method
        self._delete = delete
        self._waiting: i64 = 0

    def go_on(self, last: i64) -> bool:
        """Delete more of it.  Raises: AccessRefused (403); PreconditionFailed (406)."""
        try:
            left = self._delete.advance(last)
        except NotFound:
            # Another was faster: what is not there is deleted.
            self.channel.vhost.wait_for_removal()
            return False
        self._waiting = self._delete.waiting
        return left

    def reply(self) -> None:
        """Answer the client, after what the removal of bindings has recorded."""
        turn = self.session.turn
        unbinding = self._delete.unbinding
        if unbinding is not None:
            turn.reply_group = max(turn.reply_group, unbinding.group)
        if not self._method.no_wait and self.is_awaited():
            self.channel.connection.reply(self.channel.number, QueueDeleteOk(int(self._waiting)))


def _streams(channel: Channel, name: Name) -> list[Stream]:
    exchange = find_super_stream(channel.vhost, name)
    return [] if exchange is None else partitions_of(channel.vhost, exchange)
