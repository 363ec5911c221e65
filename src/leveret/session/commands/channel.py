"""The methods channel.flow and access.request.

channel.open and channel.close are in `connection/frame_input.py`; `channel/release.py` ends a
channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.errors import ChannelFault, NotImplementedFault
from leveret.session.channel.channel import ServerChannel
from leveret.wire.methods import (
    AccessRequest,
    AccessRequestOk,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
)

if TYPE_CHECKING:
    from leveret.wire.method import Method


def handle_channel(channel: ServerChannel, method: Method) -> bool:
    """Handle a method of class channel; return False for one that clients do not send."""
    if isinstance(method, ChannelOpen):
        raise ChannelFault("second 'channel.open' seen")
    if isinstance(method, ChannelFlow):
        if not method.active:
            raise NotImplementedFault("active=false")
        channel.connection.send(channel.number, ChannelFlowOk(True))
        return True
    return isinstance(method, ChannelCloseOk)


def handle_access(channel: ServerChannel, method: Method) -> bool:
    """Answer access.request, which AMQP 0-8 clients still send: every ticket is 1."""
    if isinstance(method, AccessRequest):
        channel.connection.send(channel.number, AccessRequestOk(1))
        return True
    return False
