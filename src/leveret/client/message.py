"""Messages as a client receives them: delivered, got, or returned.

The method and the property bytes are kept as they came; properties are decoded when first asked
for, so that a consumer of bodies pays for nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from leveret.wire.methods.basic import BasicDeliver, BasicGetOk
from leveret.wire.properties import decode_properties

if TYPE_CHECKING:
    from leveret.wire.methods.basic import BasicReturn
    from leveret.wire.properties import BasicProperties


class Content:
    """A body with its property bytes."""

    __slots__ = ("_properties", "body", "raw_properties")

    def __init__(self, raw_properties: bytes, body: bytes) -> None:
        self.raw_properties = raw_properties
        self.body = body
        self._properties: BasicProperties | None = None

    @property
    def properties(self) -> BasicProperties:
        """The properties, decoded once.  Raises: SyntaxFault (502) when they are malformed."""
        if self._properties is None:
            self._properties = decode_properties(self.raw_properties)
        return self._properties

    @property
    def headers(self) -> dict[str, object]:
        """The properties' headers; empty when there are none."""
        return self.properties.headers or {}


class Receiver(ABC):
    """The channel that messages come on: it takes them, and they are acknowledged through it."""

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


class Message(Content):
    """A message from a queue; it is to be acked unless its consumer has `no_ack`."""

    __slots__ = ("_method", "owner")

    def __init__(
        self,
        owner: Receiver,
        method: BasicDeliver | BasicGetOk,
        raw_properties: bytes,
        body: bytes,
    ) -> None:
        self.owner = owner
        self._method = method
        self.raw_properties = raw_properties
        self.body = body
        self._properties = None

    @property
    def exchange(self) -> str:
        """The exchange that it was published to."""
        return self._method.exchange

    @property
    def routing_key(self) -> str:
        """The routing key that it was published with."""
        return self._method.routing_key

    @property
    def delivery_tag(self) -> int:
        """The channel's number of this delivery."""
        return self._method.delivery_tag

    @property
    def stream_offset(self) -> int | None:
        """Its offset in the stream that it comes from; None where that is a queue."""
        offset = self.headers.get("x-stream-offset")
        return offset if isinstance(offset, int) else None

    @property
    def stream_name(self) -> str | None:
        """The partition of a super stream that it comes from; None where there is none."""
        name = self.headers.get("x-stream-name")
        return name if isinstance(name, str) else None

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        return self._method.redelivered

    @property
    def consumer_tag(self) -> str:
        """The consumer's tag; empty for a message that was got."""
        return self._method.consumer_tag if isinstance(self._method, BasicDeliver) else ""

    @property
    def message_count(self) -> int | None:
        """How many were left in the queue by a get; None for a delivery."""
        return self._method.message_count if isinstance(self._method, BasicGetOk) else None

    def ack(self) -> None:
        """Tell the broker that it is done.  Raises: the error of a channel that has ended."""
        self.owner.ack(self._method.delivery_tag)

    def nack(self, *, requeue: bool = True) -> None:
        """Refuse it.  Raises: the error of a channel that has ended."""
        self.owner.nack(self._method.delivery_tag, requeue=requeue)

    def reject(self, *, requeue: bool = True) -> None:
        """Refuse it.  Raises: the error of a channel that has ended."""
        self.owner.reject(self._method.delivery_tag, requeue=requeue)

    def __repr__(self) -> str:
        size = f"{len(self.body)} bytes"
        return f"<Message {self.delivery_tag} {self.exchange!r} {self.routing_key!r} {size}>"


class ReturnedMessage(Content):
    """A mandatory message that came back because no queue took it."""

    __slots__ = ("exchange", "reply_code", "reply_text", "routing_key")

    def __init__(self, method: BasicReturn, raw_properties: bytes, body: bytes) -> None:
        super().__init__(raw_properties, body)
        self.reply_code = method.reply_code
        self.reply_text = method.reply_text
        self.exchange = method.exchange
        self.routing_key = method.routing_key

    def __repr__(self) -> str:
        where = f"{self.exchange!r} {self.routing_key!r}"
        return f"<ReturnedMessage {self.reply_code} {self.reply_text} {where}>"
