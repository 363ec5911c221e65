"""The events that a session returns for its input, in the order of the bytes.

A token is an object that the caller passes with a request or a publish.  The session returns it
once: with the reply, with the confirm, or with the end of its channel.

The shells (asyncio, blocking) implement tokens and channel owners.  A session stores them and
returns them in events, but never calls them.

Nothing changes an event.  The frequent ones are not frozen, because creating a frozen object takes
twice as long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leveret.client.message import Message, Receiver, ReturnedMessage

if TYPE_CHECKING:
    from leveret.client.errors import PublishFailed
    from leveret.wire.method import Method


class Token(ABC):
    """The caller that waits for the reply to a request or the confirm of a publish.

    If `is_internal` is True, the request comes from the engine itself, and recovery does not repeat
    it with the application's requests.
    """

    __slots__ = ()

    is_internal = False

    @abstractmethod
    def replied(self, reply: Replied) -> None:
        """Handle the reply, before any later event."""

    @abstractmethod
    def end(self, error: Exception | None) -> None:
        """End the wait, with an error or None."""


class ChannelOwner(Receiver):
    """A shell's channel, which receives the events of its session."""

    @abstractmethod
    def delivered(self, event: Delivered) -> None:
        """Handle deliveries."""

    @abstractmethod
    def came_back(self, message: ReturnedMessage) -> None:
        """Handle a returned message that matches no unconfirmed publish."""

    @abstractmethod
    def settled(self, event: Settled) -> None:
        """Handle confirms."""

    @abstractmethod
    def consumer_cancelled(self, consumer_tag: str) -> None:
        """Handle the broker's basic.cancel."""

    @abstractmethod
    def flow_changed(self, active: bool) -> None:
        """Handle channel.flow, which the session has already answered."""

    @abstractmethod
    def ended(self, event: ChannelEnded) -> None:
        """Handle the end of the channel."""

    def suspended(self) -> None:
        """Handle the loss of a connection that is to be recovered."""

    def consumer_refused(self, consumer_tag: str, error: Exception) -> None:
        """Handle a consumer that could not be restarted on another connection."""

    def resumed(self, session: OwnedChannel) -> None:
        """Continue on a new session."""


class OwnedChannel(ABC):
    """A session's channel as it appears in events: its number and the shell's channel."""

    __slots__ = ("number", "owner")

    def __init__(self, number: int, owner: ChannelOwner) -> None:
        self.number = number
        self.owner = owner

    @abstractmethod
    def end(self, error: Exception | None, events: list[Event]) -> None:
        """End the channel, and report it once."""

    @abstractmethod
    def request(self, method: Method, token: Token) -> None:
        """Send a method that expects a reply; the `Replied` event will contain `token`."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The handshake is done."""


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The connection has ended; `error` is None if this side closed it.

    `tokens` belong to requests on the connection itself.  The end of each channel is reported
    first.
    """

    error: Exception | None
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection has ended and is to be recovered; its channels wait for the next connection.

    `tokens` belong to requests on the connection itself, which are not repeated.
    """

    error: Exception
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Blocked:
    """The broker blocks publishers for now (behaviour 16: connection.blocked on an alarm)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unblocked:
    """The broker accepts publishes again."""


@dataclass(slots=True)
class Replied:
    """The reply to a request; `message` is set for basic.get-ok."""

    token: Token
    method: Method
    message: Message | None = None


@dataclass(slots=True)
class Delivered:
    """Deliveries of one consumer that arrived together; `size` is their size with overhead."""

    owner: ChannelOwner
    consumer_tag: str
    messages: list[Message]
    size: int


@dataclass(frozen=True, slots=True)
class ChannelEnded:
    """A channel has ended; `error` is None when this side closed it."""

    channel: OwnedChannel
    error: Exception | None
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class FlowChanged:
    """The broker asked this channel to stop or resume publishing; the session has answered."""

    channel: OwnedChannel
    active: bool


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The broker cancelled a consumer."""

    channel: OwnedChannel
    consumer_tag: str


@dataclass(frozen=True, slots=True)
class CameBack:
    """A returned message matches no unconfirmed publish."""

    channel: OwnedChannel
    message: ReturnedMessage


@dataclass(slots=True)
class Settled:
    """Publishes were acked or nacked; `outcomes` contains those with a token."""

    channel: OwnedChannel
    outcomes: tuple[tuple[Token, PublishFailed | None], ...]


Event = (
    Opened
    | Delivered
    | ConnectionEnded
    | Lost
    | Blocked
    | Unblocked
    | Replied
    | ChannelEnded
    | FlowChanged
    | Cancelled
    | CameBack
    | Settled
)
