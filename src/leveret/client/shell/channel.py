"""The non-blocking part of a channel in either shell: acks, publishes, and event dispatch.

Each shell subclasses `ShellChannel`, implements `_wrote` to send output, and adds the calls that
wait for a reply.

Invariant: every call on a closed channel raises the error that closed it.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING

from leveret.client.errors import Closed
from leveret.client.events import ChannelOwner
from leveret.client.session.channel import ChannelSession
from leveret.client.session.states import ChannelState
from leveret.client.shell.shown import INTERNAL_OF_CHANNEL, shown
from leveret.wire.properties import NO_PROPERTIES, ONLY_PERSISTENT, PERSISTENT

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from leveret.client.events import ChannelEnded, Delivered, OwnedChannel, Settled, Token
    from leveret.client.message import Message, ReturnedMessage
    from leveret.client.session.confirms import PublisherConfirms
    from leveret.client.shell.connection import ShellConnection
    from leveret.client.shell.consumer import ShellConsumer
    from leveret.wire.properties import BasicProperties

log = logging.getLogger("leveret.client")

#: The accepted types of a body.
Body = bytes | bytearray | memoryview


class ShellChannel(ChannelOwner):
    """A channel of a shell; `session` is its sans-IO state."""

    #: Entered by each call; raises ConnectionInUse if the caller must not use the connection.
    _guard: AbstractContextManager[object]

    def __init__(self, connection: ShellConnection, opening: Token) -> None:
        self.session = connection.session.open_channel(self, opening)
        self._consumers: dict[str, ShellConsumer] = {}
        self._flow_active = True
        self._return_callback: Callable[[ReturnedMessage], object] | None = None

    @abstractmethod
    def _wrote(self) -> None:
        """Send the session's output, now or soon."""

    def _acked(self) -> None:
        """Send the session's acks, now or soon."""
        self._wrote()

    def __dir__(self) -> list[str]:
        return shown(super().__dir__(), INTERNAL_OF_CHANNEL)

    def __repr__(self) -> str:
        marks = f", {len(self._consumers)} consumers"
        if self.session.confirms is not None:
            marks += f", {self.unconfirmed_count} unconfirmed"
        return f"<Channel {self.number} {self.session.state.value}{marks}>"

    @property
    def is_open(self) -> bool:
        """Whether the channel can be used, as of the last input read."""
        return self.session.state is ChannelState.OPEN

    @property
    def number(self) -> int:
        """The channel's number on its connection, from 1."""
        return self.session.number

    @property
    def error(self) -> Exception | None:
        """The error that closed the channel; None while it is open or if this side closed it."""
        return self.session.error

    @property
    def unconfirmed_count(self) -> int:
        """The number of unconfirmed publishes; 0 outside confirm mode."""
        return self.session.confirms.unconfirmed if self.session.confirms is not None else 0

    def ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """Ack one delivery, or with `multiple` all up to it; tag 0 with `multiple` means all.

        `message.ack()` acks one message.  The broker closes the channel for an unknown tag (406).

        Raises: the channel's error when it is closed; DeliveryLost for a delivery of a lost
        connection; ConnectionInUse.
        """
        with self._guard:
            self.session.ack(delivery_tag, multiple)
            self._acked()

    def nack(self, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> None:
        """Nack one delivery, or with `multiple` all up to it; tag 0 with `multiple` means all.

        With `requeue` the broker delivers the messages again; otherwise it dead-letters or drops
        them.

        Raises: as `ack`.
        """
        with self._guard:
            self.session.nack(delivery_tag, multiple, requeue)
            self._wrote()

    def reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """Reject one delivery: requeue it, or let the broker dead-letter or drop it.

        Raises: as `ack`.
        """
        with self._guard:
            self.session.reject(delivery_tag, requeue)
            self._wrote()

    def on_return(self, callback: Callable[[ReturnedMessage], object] | None) -> None:
        """Call `callback` with each mandatory message that is returned outside confirm mode.

        Without a callback, such messages are logged.  In confirm mode, `publish` and
        `wait_for_confirms` raise Returned instead.
        """
        self._return_callback = callback

    def came_back(self, message: ReturnedMessage) -> None:
        """Pass a returned message to the callback, or log it if no callback is set."""
        if self._return_callback is not None:
            self._return_callback(message)
        else:
            log.warning("%r was returned on channel %d without a callback", message, self.number)

    # -- consumers ---------------------------------------------------------------------------------

    def add_consumer(self, consumer: ShellConsumer) -> None:
        """Route messages with the consumer's tag to the consumer."""
        self._consumers[consumer.consumer_tag] = consumer

    def remove_consumer(self, consumer: ShellConsumer) -> None:
        """Stop routing messages to the consumer, and do not restart it after a lost connection."""
        self._consumers.pop(consumer.consumer_tag, None)
        if self.session.memory is not None:
            self.session.memory.forget_consumer(consumer.consumer_tag)

    def queue_of(self, message: Message) -> str:
        """Return the queue of a message's consumer; empty for basic.get."""
        consumer = self._consumers.get(message.consumer_tag)
        return consumer.queue if consumer is not None else ""

    def delivered(self, event: Delivered) -> None:
        """Handle deliveries."""
        consumer = self._consumers.get(event.consumer_tag)
        if consumer is None:
            log.debug("%r arrived without a consumer", event.messages)
        else:
            consumer.push(event.messages, event.size)

    def consumer_cancelled(self, consumer_tag: str) -> None:
        """Handle the broker's basic.cancel."""
        consumer = self._consumers.get(consumer_tag)
        if consumer is not None:
            self.remove_consumer(consumer)
            consumer.cancelled()

    def consumer_refused(self, consumer_tag: str, error: Exception) -> None:
        """End a consumer that could not be restarted, with `error`."""
        consumer = self._consumers.get(consumer_tag)
        if consumer is None:
            assert self.session.memory is not None
            self.session.memory.forget_consumer(consumer_tag)
            return
        self.remove_consumer(consumer)
        consumer.ended(error)

    # -- publishing --------------------------------------------------------------------------------

    @property
    def flow_active(self) -> bool:
        """Whether the broker accepts publishes on this channel (`channel.flow`)."""
        return self._flow_active

    def flow_changed(self, active: bool) -> None:
        """Handle channel.flow.  Publishes wait while the flow is inactive."""
        self._flow_active = active

    def settled(self, event: Settled) -> None:
        """Handle confirms."""
        for token, failure in event.outcomes:
            token.end(failure)

    def _confirms(self) -> PublisherConfirms:
        """Return the confirms of the channel.  Raises: ValueError outside confirm mode."""
        if self.session.confirms is None:
            raise ValueError("the channel is not in confirm mode")
        return self.session.confirms

    def _check_confirms(self, confirms: PublisherConfirms) -> None:
        """Raise failures of publishes without a token.

        Raises: Nacked, Returned; the channel's error if it ended with unconfirmed publishes.
        """
        if confirms.lost:
            self.session.check_open()
        failure = confirms.take_failure()
        if failure is not None:
            raise failure

    def _put(
        self,
        body: Body,
        exchange: str,
        routing_key: str,
        properties: BasicProperties | None,
        mandatory: bool,
        persistent: bool,
        token: Token | None,
    ) -> int:
        """Write a publish; return its sequence in confirm mode, else 0.

        A delivery mode in the properties takes precedence over `persistent`.
        """
        if not isinstance(body, bytes):
            if not isinstance(body, (bytearray, memoryview)):
                raise TypeError(f"body must be bytes, not {type(body).__name__}")
            body = bytes(body)
        if properties is None:
            raw = ONLY_PERSISTENT if persistent else NO_PROPERTIES
        else:
            raw = properties.encode(PERSISTENT if persistent else None)
        return self.session.publish(body, exchange, routing_key, raw, mandatory, token)

    # -- the end -----------------------------------------------------------------------------------

    def close_session(self, code: int, text: str) -> None:
        """Begin to close the channel; during recovery, close it at once."""
        for event in self.session.close(code, text):
            self.ended(event)

    def suspended(self) -> None:
        """Handle the loss of the connection; consumers and publishers wait for its recovery."""
        self._flow_active = True
        for consumer in self._consumers.values():
            consumer.suspended()

    def resumed(self, session: OwnedChannel) -> None:
        """Continue on a new session."""
        assert isinstance(session, ChannelSession)
        self.session = session

    def ended(self, event: ChannelEnded) -> None:
        """Fail all pending requests and end all consumers at the end of the channel."""
        error = event.error or Closed(f"channel {self.number} was closed")
        for token in event.tokens:
            token.end(error)
        consumers = list(self._consumers.values())
        self._consumers.clear()
        for consumer in consumers:
            consumer.ended(event.error)
