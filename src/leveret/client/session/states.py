"""The states of a connection and of a channel, and tables of the methods accepted in each.

A method that is not in the table of the current state is an error of the broker (503).  Replies are
not listed, because they are matched with the pending requests (`Method.REPLIES`).

Source: AMQP 0-9-1 sections 1.4 to 1.8, and RabbitMQ for simultaneous closes.
"""

from __future__ import annotations

import enum
from typing import Final

from leveret.wire.method import Method
from leveret.wire.methods.basic import BasicAck, BasicCancel, BasicDeliver, BasicNack, BasicReturn
from leveret.wire.methods.channel import ChannelClose, ChannelCloseOk, ChannelFlow, ChannelOpenOk
from leveret.wire.methods.connection import (
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionStart,
    ConnectionTune,
    ConnectionUnblocked,
)


class ConnectionState(enum.Enum):
    """The state of a connection, from the client's view."""

    STARTING = "waits for connection.start"
    TUNING = "sent the login, waits for connection.tune"
    OPENING = "asked for the vhost, waits for connection.open-ok"
    OPEN = "is open"
    CLOSING = "sent connection.close, waits for connection.close-ok"
    CLOSED = "has ended"


class ChannelState(enum.Enum):
    """The state of a channel, from the client's view."""

    OPENING = "sent channel.open, waits for channel.open-ok"
    OPEN = "is open"
    CLOSING = "sent channel.close, waits for channel.close-ok"
    CLOSED = "has ended"


#: state → the broker's method → next state.  A closing connection drops all other methods.
CONNECTION: Final[dict[ConnectionState, dict[type[Method], ConnectionState]]] = {
    ConnectionState.STARTING: {
        ConnectionStart: ConnectionState.TUNING,
        ConnectionClose: ConnectionState.CLOSED,
    },
    ConnectionState.TUNING: {
        ConnectionSecure: ConnectionState.TUNING,
        ConnectionTune: ConnectionState.OPENING,
        ConnectionClose: ConnectionState.CLOSED,
    },
    ConnectionState.OPENING: {
        ConnectionOpenOk: ConnectionState.OPEN,
        ConnectionClose: ConnectionState.CLOSED,
    },
    ConnectionState.OPEN: {
        ConnectionBlocked: ConnectionState.OPEN,
        ConnectionUnblocked: ConnectionState.OPEN,
        ConnectionClose: ConnectionState.CLOSED,
    },
    ConnectionState.CLOSING: {
        ConnectionClose: ConnectionState.CLOSING,
        ConnectionCloseOk: ConnectionState.CLOSED,
    },
    ConnectionState.CLOSED: {},
}

#: state → the broker's method → next state.  If both sides close at once, each answers the other,
#: and the channel number is free only after the close-ok.
CHANNEL: Final[dict[ChannelState, dict[type[Method], ChannelState]]] = {
    ChannelState.OPENING: {
        ChannelOpenOk: ChannelState.OPEN,
        ChannelClose: ChannelState.CLOSED,
    },
    ChannelState.OPEN: {
        BasicDeliver: ChannelState.OPEN,
        BasicReturn: ChannelState.OPEN,
        BasicAck: ChannelState.OPEN,
        BasicNack: ChannelState.OPEN,
        BasicCancel: ChannelState.OPEN,
        ChannelFlow: ChannelState.OPEN,
        ChannelClose: ChannelState.CLOSED,
    },
    ChannelState.CLOSING: {
        ChannelClose: ChannelState.CLOSING,
        ChannelCloseOk: ChannelState.CLOSED,
    },
    ChannelState.CLOSED: {},
}
