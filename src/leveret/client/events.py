"""What a session reports of the bytes it was given, in the order of those bytes.

Besides these, a delivery is reported as its `Message`.  A token is whatever the caller gave with a
request or a publish; it comes back once: answered, settled, or in the end of its channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leveret.client.message import Message, ReturnedMessage

if TYPE_CHECKING:
    from leveret.client.channel_session import ChannelSession
    from leveret.client.errors import PublishFailed
    from leveret.client.owner import Token
    from leveret.wire.method import Method


@dataclass(frozen=True, slots=True)
class Opened:
    """The handshake is done."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection has ended; `error` is None when this side closed it.

    `tokens` are those of requests on the connection itself; each channel has its own end before.
    """

    error: Exception | None
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Blocked:
    """The broker takes no publishes for now (behaviour 16)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """The broker takes publishes again."""


@dataclass(frozen=True, slots=True)
class Replied:
    """The answer to a request; `message` is there when it is basic.get-ok."""

    token: Token
    method: Method
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class ChannelEnded:
    """A channel has ended; `error` is None when this side closed it."""

    channel: ChannelSession
    error: Exception | None
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class FlowChanged:
    """The broker asks this channel to stop or to go on publishing; it was answered."""

    channel: ChannelSession
    active: bool


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The broker ended a consumer."""

    channel: ChannelSession
    consumer_tag: str


@dataclass(frozen=True, slots=True)
class CameBack:
    """A mandatory message came back that belongs to no unconfirmed publish."""

    channel: ChannelSession
    message: ReturnedMessage


@dataclass(frozen=True, slots=True)
class Settled:
    """Publishes were confirmed or refused; `outcomes` are those that carried a token."""

    channel: ChannelSession
    outcomes: tuple[tuple[Token, PublishFailed | None], ...]


Event = (
    Message
    | Opened
    | Ended
    | Blocked
    | Unblocked
    | Replied
    | ChannelEnded
    | FlowChanged
    | Cancelled
    | CameBack
    | Settled
)
