"""What a session reports of the bytes it was given, in the order of those bytes, and to whom.

A token is whatever the caller gave with a
request or a publish; it comes back once: answered, settled, or in the end of its channel.

A session holds tokens and owners and calls none of them: they come back to the shell in events.  A
shell (asyncio, blocking) implements both.
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
    """Someone who waits for the reply to a request or the confirm of a publish.

    What `is_internal` waits for is asked by the engine itself: it is not asked again by who asks
    for the application's requests again.
    """

    __slots__ = ()

    is_internal = False

    @abstractmethod
    def replied(self, reply: Replied) -> None:
        """Take the reply, before anything that follows it."""

    @abstractmethod
    def end(self, error: Exception | None) -> None:
        """Record that the wait is over, and its error if any."""


class Owner(Receiver):
    """A shell's channel: it takes what is reported of its session."""

    @abstractmethod
    def delivered(self, event: Delivered) -> None:
        """Take deliveries."""

    @abstractmethod
    def came_back(self, message: ReturnedMessage) -> None:
        """Take a returned message that belongs to no unconfirmed publish."""

    @abstractmethod
    def settled(self, event: Settled) -> None:
        """Take confirms."""

    @abstractmethod
    def consumer_cancelled(self, consumer_tag: str) -> None:
        """Take the broker's basic.cancel."""

    @abstractmethod
    def flow_changed(self, active: bool) -> None:
        """Take channel.flow, which was answered."""

    @abstractmethod
    def ended(self, event: ChannelEnded) -> None:
        """Handle the end of the channel."""

    def suspended(self) -> None:
        """Take the loss of the connection, which is to be recovered."""

    def consumer_refused(self, consumer_tag: str, error: Exception) -> None:
        """Take that a consumer could not be started again on another connection."""

    def resumed(self, session: OwnedChannel) -> None:
        """Take the session by which the channel goes on."""


class OwnedChannel(ABC):
    """A channel of a session, as its events name it: its number, and the shell's channel."""

    __slots__ = ("number", "owner")

    def __init__(self, number: int, owner: Owner) -> None:
        self.number = number
        self.owner = owner

    @abstractmethod
    def end(self, error: Exception | None, events: list[Event]) -> None:
        """Take the channel as ended, and report it once."""

    @abstractmethod
    def request(self, method: Method, token: Token) -> None:
        """Send a method that is answered; its `Replied` carries `token`."""


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
class Lost:
    """The connection has ended and is to be recovered; its channels wait for another.

    `tokens` are those of requests on the connection itself, which are not sent again.
    """

    error: Exception
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
class Delivered:
    """Deliveries that came together, all of one consumer; `size` is what they count as waiting."""

    owner: Owner
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
    """The broker asks this channel to stop or to go on publishing; it was answered."""

    channel: OwnedChannel
    active: bool


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The broker ended a consumer."""

    channel: OwnedChannel
    consumer_tag: str


@dataclass(frozen=True, slots=True)
class CameBack:
    """A mandatory message came back that belongs to no unconfirmed publish."""

    channel: OwnedChannel
    message: ReturnedMessage


@dataclass(frozen=True, slots=True)
class Settled:
    """Publishes were confirmed or refused; `outcomes` are those that carried a token."""

    channel: OwnedChannel
    outcomes: tuple[tuple[Token, PublishFailed | None], ...]


Event = (
    Opened
    | Delivered
    | Ended
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
