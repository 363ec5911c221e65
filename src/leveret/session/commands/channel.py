"""The class channel: opening and flow; closing is the connection's matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.errors import ChannelFault, NotAllowed, NotImplementedFault
from leveret.session.channel.channel import Channel
from leveret.wire.methods import (
    AccessRequest,
    AccessRequestOk,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
)

if TYPE_CHECKING:
    from leveret.session.connection.connection import Connection
    from leveret.wire.method import Method


def open_channel(connection: Connection, number: i64) -> Channel:
    """Open channel `number`, which is free.

    Raises: NotAllowed (530) when as many are open as were negotiated (behaviour 12), or as the
    user may have.
    """
    if len(connection.channels) >= connection.channels_max:
        raise NotAllowed(
            f"number of channels opened ({len(connection.channels)}) has reached the negotiated "
            f"channel_max ({connection.channels_max})"
        )
    connection.broker.check_channel(connection)
    vhost = connection.vhost
    assert vhost is not None
    channel = Channel(connection, number, vhost)
    connection.channels[number] = channel
    return channel


def handle_channel(channel: Channel, method: Method) -> bool:
    """Do a method of class channel; tell whether it is one that a client sends."""
    if isinstance(method, ChannelOpen):
        raise ChannelFault("second 'channel.open' seen")
    if isinstance(method, ChannelFlow):
        if not method.active:
            raise NotImplementedFault("active=false")
        channel.connection.send(channel.number, ChannelFlowOk(True))
        return True
    return isinstance(method, ChannelCloseOk)


def handle_access(channel: Channel, method: Method) -> bool:
    """Answer access.request, which AMQP 0-8 clients still send: every ticket is 1."""
    if isinstance(method, AccessRequest):
        channel.connection.send(channel.number, AccessRequestOk(1))
        return True
    return False
