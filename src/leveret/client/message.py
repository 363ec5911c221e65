"""Messages that a client receives (delivered, got or returned), and the block that handles one.

The property bytes are stored as received and decoded on first access, so that a consumer that reads
only bodies does not pay for decoding.

This module is compiled: a consumer creates, returns and acks a message in a few microseconds.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from datetime import datetime
from types import TracebackType
from typing import Any, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.client.acks import Acks
from leveret.client.deaths import DeadLettering, deaths_of
from leveret.client.numbering import without_number
from leveret.client.times import moment_of, with_moments
from leveret.wire.methods.basic import BasicDeliver, BasicGetOk, BasicReturn
from leveret.wire.properties import BasicProperties, decode_properties

log = logging.getLogger("leveret.client")


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageContent:
    """A body with its property bytes."""

    __slots__ = ("_properties", "body", "raw_properties")

    def __init__(self, raw_properties: bytes, body: bytes) -> None:
        #: The properties as bytes, as in the content header.
        self.raw_properties = raw_properties
        #: The body.
        self.body = body
        self._properties: BasicProperties | None = None

    @property
    def properties(self) -> BasicProperties:
        """The properties as sent, decoded once.

        Raises: SyntaxFault (502) when they are malformed.
        """
        if self._properties is None:
            raw = self.raw_properties
            self._properties = without_number(raw, decode_properties(raw))
        return self._properties

    @property
    def headers(self) -> dict[str, object]:
        """The headers, with times as datetimes in UTC; empty if the message has none."""
        headers = self.properties.headers
        return with_moments(headers) if headers else {}

    @property
    def deaths(self) -> tuple[DeadLettering, ...]:
        """The message's dead-letterings, newest first; empty if it has none.

        They are read from the header `x-death`, which a publisher may also have written.
        """
        return deaths_of(self.properties.headers or {})

    @property
    def timestamp(self) -> datetime | None:
        """The publisher's timestamp in UTC, or None if it is missing or beyond the year 9999."""
        seconds = self.properties.timestamp
        return moment_of(seconds) if seconds is not None else None


@mypyc_attr(allow_interpreted_subclasses=True)
class Receiver:
    """The channel that received a message and sends its ack."""

    @abstractmethod
    def ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """Ack one delivery, or with `multiple` all up to it; tag 0 with `multiple` means all."""

    @abstractmethod
    def nack(self, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> None:
        """Nack one delivery, or with `multiple` all up to it."""

    @abstractmethod
    def reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """Reject one delivery."""

    def processing(
        self, message: Message, requeue: bool, reject_on_redelivered: bool, ignore_processed: bool
    ) -> Processing:
        """Return the block of `Message.process`; a traced channel returns one with a span."""
        return Processing(message, requeue, reject_on_redelivered, ignore_processed)


@final
class MessageOrigin:
    """The consumer tag, exchange and routing key of received messages.

    The consumer tag is empty for a message from basic.get.
    """

    def __init__(self, consumer_tag: str, exchange: str, routing_key: str) -> None:
        self.consumer_tag: Final = consumer_tag
        self.exchange: Final = exchange
        self.routing_key: Final = routing_key


@final
class Message(MessageContent):
    """A message from a queue.

    Unless its consumer has `no_ack`, the program settles each message by `ack`, `nack`, `reject` or
    a block `with message.process()`.  Otherwise the broker delivers it again when the channel ends.
    These calls do not wait for a reply.
    """

    __slots__ = (
        "_acks",
        "_origin",
        "delivery_tag",
        "message_count",
        "owner",
        "processed",
        "redelivered",
    )

    def __init__(
        self,
        owner: Receiver,
        origin: MessageOrigin,
        delivery_tag: i64,
        redelivered: bool,
        raw_properties: bytes,
        body: bytes,
        acks: Acks | None = None,
        message_count: int | None = None,
    ) -> None:
        super().__init__(raw_properties, body)
        self.owner = owner
        self._origin = origin
        #: The number of this delivery on its channel.
        self.delivery_tag: i64 = delivery_tag
        #: Whether the message may have been delivered before.
        self.redelivered = redelivered
        #: Whether `ack`, `nack` or `reject` of this message was called.
        self.processed = False
        self._acks = acks
        #: How many messages `get` left in the queue; None for a message of a consumer.
        self.message_count = message_count

    @property
    def exchange(self) -> str:
        """The exchange to which the message was published; empty for the default exchange."""
        return self._origin.exchange

    @property
    def routing_key(self) -> str:
        """The routing key with which the message was published."""
        return self._origin.routing_key

    @property
    def consumer_tag(self) -> str:
        """The consumer's tag; empty for a message from basic.get."""
        return self._origin.consumer_tag

    @property
    def stream_offset(self) -> int | None:
        """The message's offset in its stream, or None if it comes from a queue."""
        offset = (self.properties.headers or {}).get("x-stream-offset")
        return offset if isinstance(offset, int) else None

    @property
    def stream_name(self) -> str | None:
        """The super stream partition that the message comes from, or None."""
        name = (self.properties.headers or {}).get("x-stream-name")
        return name if isinstance(name, str) else None

    def ack(self) -> None:
        """Ack the message, so that the broker removes it from the queue.

        Raises: the channel's error when it is closed; DeliveryLost if the connection was lost since
        the delivery; ConnectionInUse.
        """
        self.processed = True
        acks = self._acks
        if acks is None or not acks.joins(self.delivery_tag):
            self.owner.ack(self.delivery_tag)

    def nack(self, *, requeue: bool = True) -> None:
        """Nack the message: requeue it, or let the broker dead-letter or drop it.

        Unlike a reject, a nack with `requeue` does not count towards the delivery limit of a queue
        of Leveret or RabbitMQ 4.3.

        Raises: as `ack`.
        """
        self.processed = True
        self.owner.nack(self.delivery_tag, requeue=requeue)

    def reject(self, *, requeue: bool = True) -> None:
        """Reject the message: requeue it, or let the broker dead-letter or drop it.

        Raises: as `ack`.
        """
        self.processed = True
        self.owner.reject(self.delivery_tag, requeue=requeue)

    def process(
        self,
        requeue: bool = False,
        *,
        reject_on_redelivered: bool = False,
        ignore_processed: bool = False,
    ) -> Processing:
        """Handle the message in a `with` or `async with` block: ack at its end, reject on error.

        The exception propagates after the reject, and the broker drops or dead-letters the message.
        With `requeue` the broker redelivers it instead, unless `reject_on_redelivered` is set and
        the message was redelivered before.  With `ignore_processed` the program may settle the
        message inside the block.

        Raises: at the end of the block, the channel's error when it is closed.
        """
        return self.owner.processing(self, requeue, reject_on_redelivered, ignore_processed)

    def __dir__(self) -> list[str]:
        # `owner` is the channel: users settle a message by the message's own methods.
        return [name for name in super().__dir__() if name != "owner"]

    def __repr__(self) -> str:
        # Without the body, because messages are logged and bodies may be secret.
        where = f"exchange={self.exchange!r} routing_key={self.routing_key!r}"
        marks = " redelivered" if self.redelivered else ""
        if self.processed:
            marks += " processed"
        return f"<Message {self.delivery_tag} {where} {len(self.body)} bytes{marks}>"


def delivered(
    owner: Receiver,
    method: BasicDeliver,
    raw_properties: bytes,
    body: bytes,
    acks: Acks | None = None,
) -> Message:
    """Return the message of a basic.deliver."""
    origin = MessageOrigin(method.consumer_tag, method.exchange, method.routing_key)
    tag = method.delivery_tag
    return Message(owner, origin, tag, method.redelivered, raw_properties, body, acks)


def got(
    owner: Receiver, method: BasicGetOk, raw_properties: bytes, body: bytes, acks: Acks | None
) -> Message:
    """Return the message of a basic.get-ok."""
    origin = MessageOrigin("", method.exchange, method.routing_key)
    tag, count = method.delivery_tag, method.message_count
    return Message(
        owner, origin, tag, method.redelivered, raw_properties, body, acks, message_count=count
    )


@mypyc_attr(allow_interpreted_subclasses=True)
class Processing:
    """The `with` block that handles a message; see `Message.process`."""

    __slots__ = ("_ignore_processed", "_message", "_reject_on_redelivered", "_requeue")

    def __init__(
        self,
        message: Message,
        requeue: bool,
        reject_on_redelivered: bool,
        ignore_processed: bool,
    ) -> None:
        self._message = message
        self._requeue = requeue
        self._reject_on_redelivered = reject_on_redelivered
        self._ignore_processed = ignore_processed

    def __enter__(self) -> Message:
        return self._message

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        message = self._message
        if self._ignore_processed and message.processed:
            return
        if kind is None:
            message.ack()
            return
        requeue = self._requeue and not (self._reject_on_redelivered and message.redelivered)
        try:
            message.reject(requeue=requeue)
        except Exception as failure:  # noqa: BLE001 -- the block's own error takes precedence
            # Usually the channel has ended, so the broker has already requeued the message.
            log.warning("%r cannot be rejected: %s", message, failure)

    async def __aenter__(self) -> Message:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)


@final
class ReturnedMessage(MessageContent):
    """A mandatory message that the broker returned, because no queue took it."""

    __slots__ = ("exchange", "reply_code", "reply_text", "routing_key")

    def __init__(self, method: BasicReturn, raw_properties: bytes, body: bytes) -> None:
        super().__init__(raw_properties, body)
        #: The reply code: 312 if no queue took the message.
        self.reply_code = method.reply_code
        #: The broker's reason.
        self.reply_text = method.reply_text
        #: The exchange to which the message was published.
        self.exchange = method.exchange
        #: The routing key with which the message was published.
        self.routing_key = method.routing_key

    def __repr__(self) -> str:
        where = f"exchange={self.exchange!r} routing_key={self.routing_key!r}"
        return f"<ReturnedMessage {self.reply_code} {self.reply_text} {where}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled classes do not pickle by default, and errors contain these messages.
        fields = (self.reply_code, self.reply_text, self.exchange, self.routing_key)
        return returned, (*fields, self.raw_properties, self.body)


def returned(
    code: int, text: str, exchange: str, routing_key: str, raw_properties: bytes, body: bytes
) -> ReturnedMessage:
    """Return a `ReturnedMessage` with these fields."""
    return ReturnedMessage(BasicReturn(code, text, exchange, routing_key), raw_properties, body)
