"""What a channel of either shell does without waiting: ack, publish, and where its events go.

A shell subclasses it, says what happens after something was written (`_wrote`), and adds the calls
that wait for a reply.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING

from leveret.client.errors import Closed
from leveret.client.events import Owner
from leveret.client.session.channel import ChannelSession
from leveret.client.session.states import ChannelState
from leveret.client.shell.shown import INTERNAL_OF_CHANNEL, shown
from leveret.wire.properties import NO_PROPERTIES, ONLY_PERSISTENT, PERSISTENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.events import ChannelEnded, Delivered, OwnedChannel, Settled, Token
    from leveret.client.message import Message, ReturnedMessage
    from leveret.client.session.confirms import Confirms
    from leveret.client.session.connection import Session
    from leveret.client.shell.consumer import ShellConsumer
    from leveret.wire.properties import BasicProperties

log = logging.getLogger("leveret.client")

#: What a body may be given as.
Body = bytes | bytearray | memoryview


class ShellChannel(Owner):
    """A channel of a shell; `session` is its sans-IO state."""

    def __init__(self, session: Session, opening: Token) -> None:
        self.session = session.open_channel(self, opening)
        self._consumers: dict[str, ShellConsumer] = {}
        self._flow_active = True
        self._return_callback: Callable[[ReturnedMessage], object] | None = None

    @abstractmethod
    def _wrote(self) -> None:
        """Have what was written sent, now or soon."""

    @abstractmethod
    def _acked(self) -> None:
        """Have an ack that was written or gathered sent, now or soon."""

    def __dir__(self) -> list[str]:
        return shown(super().__dir__(), INTERNAL_OF_CHANNEL)

    @property
    def is_open(self) -> bool:
        """Whether the channel can be used, as far as was read."""
        return self.session.state is ChannelState.OPEN

    @property
    def number(self) -> int:
        """The channel's number."""
        return self.session.number

    @property
    def error(self) -> Exception | None:
        """What ended the channel; None while it is open or when this side closed it."""
        return self.session.error

    @property
    def unconfirmed_count(self) -> int:
        """How many publishes wait for their confirm; 0 without confirm mode."""
        return self.session.confirms.unconfirmed if self.session.confirms is not None else 0

    def ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """Ack one delivery, or with `multiple` all up to it; tag 0 with `multiple` means all.

        Raises: the channel's error when it has ended.
        """
        self.session.ack(delivery_tag, multiple)
        self._acked()

    def nack(self, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse one delivery, or with `multiple` all up to it.

        Raises: the channel's error when it has ended.
        """
        self.session.nack(delivery_tag, multiple, requeue)
        self._wrote()

    def reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """Reject one delivery.  Raises: the channel's error when it is closed."""
        self.session.reject(delivery_tag, requeue)
        self._wrote()

    def on_return(self, callback: Callable[[ReturnedMessage], object] | None) -> None:
        """Have mandatory messages that come back outside confirm mode given to `callback`."""
        self._return_callback = callback

    def came_back(self, message: ReturnedMessage) -> None:
        """Hand over a returned message, or say that nobody wanted it."""
        if self._return_callback is not None:
            self._return_callback(message)
        else:
            log.warning("%r came back on channel %d and has no callback", message, self.number)

    # -- consumers ---------------------------------------------------------------------------------

    def add_consumer(self, consumer: ShellConsumer) -> None:
        """Route messages with the consumer's tag to it."""
        self._consumers[consumer.consumer_tag] = consumer

    def remove_consumer(self, consumer: ShellConsumer) -> None:
        """Route nothing more to the consumer, and do not start it again after a lost connection."""
        self._consumers.pop(consumer.consumer_tag, None)
        if self.session.memory is not None:
            self.session.memory.forget_consumer(consumer.consumer_tag)

    def queue_of(self, message: Message) -> str:
        """Return the queue of a message's consumer; empty for one that was got."""
        consumer = self._consumers.get(message.consumer_tag)
        return consumer.queue if consumer is not None else ""

    def delivered(self, event: Delivered) -> None:
        """Take deliveries."""
        consumer = self._consumers.get(event.consumer_tag)
        if consumer is None:
            log.debug("%r came for no consumer", event.messages)
        else:
            consumer.push(event.messages, event.size)

    def consumer_cancelled(self, consumer_tag: str) -> None:
        """Take the broker's basic.cancel."""
        consumer = self._consumers.get(consumer_tag)
        if consumer is not None:
            self.remove_consumer(consumer)
            consumer.cancelled()

    def consumer_refused(self, consumer_tag: str, error: Exception) -> None:
        """Take that a consumer could not be started again: it ends by `error`."""
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
        """Whether the broker takes publishes on this channel."""
        return self._flow_active

    def flow_changed(self, active: bool) -> None:
        """Take channel.flow: publishes wait while it is not active."""
        self._flow_active = active

    def settled(self, event: Settled) -> None:
        """Take confirms."""
        for token, failure in event.outcomes:
            token.end(failure)

    def _confirms(self) -> Confirms:
        """Return the confirms of the channel.  Raises: ValueError without confirm mode."""
        if self.session.confirms is None:
            raise ValueError("the channel is not in confirm mode")
        return self.session.confirms

    def _check_confirms(self, confirms: Confirms) -> None:
        """Raise what went wrong with publishes that nobody waited for one by one.

        Raises: Nacked, Returned; the channel's error when it ended with some unconfirmed.
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
                raise TypeError(f"a body is bytes, not {type(body).__name__}")
            body = bytes(body)
        if properties is None:
            raw = ONLY_PERSISTENT if persistent else NO_PROPERTIES
        else:
            raw = properties.encode(PERSISTENT if persistent else None)
        return self.session.publish(body, exchange, routing_key, raw, mandatory, token)

    # -- the end -----------------------------------------------------------------------------------

    def close_session(self, code: int, text: str) -> None:
        """Begin to close; while the connection is being recovered that is done at once."""
        for event in self.session.close(code, text):
            self.ended(event)

    def suspended(self) -> None:
        """Take the loss of the connection: consumers and publishers wait for another."""
        self._flow_active = True
        for consumer in self._consumers.values():
            consumer.suspended()

    def resumed(self, session: OwnedChannel) -> None:
        """Take the session by which the channel goes on."""
        assert isinstance(session, ChannelSession)
        self.session = session

    def ended(self, event: ChannelEnded) -> None:
        """Take the end of the channel: every waiter and every consumer hears of it."""
        error = event.error or Closed(f"channel {self.number} was closed")
        for token in event.tokens:
            token.end(error)
        consumers = list(self._consumers.values())
        self._consumers.clear()
        for consumer in consumers:
            consumer.ended(event.error)
