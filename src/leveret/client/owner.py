"""What a session talks to: the shell's channels, and the tokens of those who wait.

A session holds these and calls none of them: they come back to the shell in events, and messages
ack by their owner.  A shell (asyncio, blocking) implements both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.client.events import ChannelEnded, Replied, Settled
    from leveret.client.message import Message, ReturnedMessage


class Token(ABC):
    """Someone who waits for the reply to a request or the confirm of a publish."""

    __slots__ = ()

    @abstractmethod
    def replied(self, reply: Replied) -> None:
        """Take the reply, before anything that follows it."""

    @abstractmethod
    def end(self, error: Exception | None) -> None:
        """Take the outcome of a publish, or the error that ended the waiting."""


class Owner(ABC):
    """A shell's channel."""

    @abstractmethod
    def ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """Ack one delivery, or with `multiple` all up to it; tag 0 with `multiple` means all."""

    @abstractmethod
    def nack(self, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse one delivery, or with `multiple` all up to it."""

    @abstractmethod
    def reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """Refuse one delivery."""

    @abstractmethod
    def delivered(self, message: Message) -> None:
        """Take a delivery."""

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
        """Take the end of the channel."""
