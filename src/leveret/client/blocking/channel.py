"""A channel of the blocking shell: every AMQP operation as a call that returns when it is done.

Invariant: an ended channel raises what ended it from every later call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from leveret.client import requests
from leveret.client.blocking.calls import Call, Waiting
from leveret.client.blocking.columns import ColumnConsumer
from leveret.client.blocking.consumer import Consumer
from leveret.client.errors import Closed
from leveret.client.shell_channel import ShellChannel, log
from leveret.limits import CLIENT_MESSAGE_OVERHEAD_BYTES, CLIENT_OUTPUT_BYTES_HIGH
from leveret.wire.deliveries import DeliveryScanner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.blocking.connection import Connection
    from leveret.client.blocking.consumer import Callback
    from leveret.client.events import ChannelEnded, Replied, Settled
    from leveret.client.message import Message
    from leveret.client.requests import DeclareOk, Request
    from leveret.client.shell_channel import Body
    from leveret.wire.method import Method
    from leveret.wire.properties import BasicProperties

T = TypeVar("T")


class Channel(ShellChannel):
    """One channel; made by `Connection.channel`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self._consumers: dict[str, Consumer] = {}
        self._flow_active = True
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self, code: int = 200, text: str = "") -> None:
        """Close the channel; its unacked messages go back to their queues."""
        with self.connection.one_thread:
            if not self._ended:
                self.session.close(code, text)
                self.connection.run_until(lambda: self._ended)

    def call(self, request: Request[T]) -> T:
        """Send a request and return its result.

        Raises: the channel's error; ValueError when an argument cannot be written.
        """
        return self._call(request.method, Call(request.result))

    def _call(self, method: Method, call: Call[T]) -> T:
        """Send a method and wait for the end of its token."""
        with self.connection.one_thread:
            self.session.request(method, call)
            self.connection.run_until(lambda: call.done)
            return call.result()

    def ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """Ack one delivery, or with `multiple` all up to it; tag 0 with `multiple` means all.

        Raises: the channel's error when it has ended.
        """
        with self.connection.one_thread:
            super().ack(delivery_tag, multiple=multiple)

    def nack(self, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse one delivery, or with `multiple` all up to it.

        Raises: the channel's error when it has ended.
        """
        with self.connection.one_thread:
            super().nack(delivery_tag, multiple=multiple, requeue=requeue)

    def reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """Refuse one delivery.  Raises: the channel's error when it has ended."""
        with self.connection.one_thread:
            super().reject(delivery_tag, requeue=requeue)

    # -- queue and exchange ------------------------------------------------------------------------

    def queue_declare(
        self,
        queue: str = "",
        *,
        passive: bool = False,
        durable: bool | None = None,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> DeclareOk:
        """Create a queue, or with `passive` check that it is there.

        It is durable unless it is exclusive, or `durable` says otherwise.

        Raises: NotFound (404), ResourceLocked (405), PreconditionFailed (406), AccessRefused (403).
        """
        request = requests.queue_declare(queue, passive, durable, exclusive, auto_delete, arguments)
        return self.call(request)

    def queue_bind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Bind a queue to an exchange.  Raises: NotFound (404), AccessRefused (403)."""
        self.call(requests.queue_bind(queue, exchange, binding_key, arguments))

    def queue_unbind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Remove a binding.  Raises: NotFound (404)."""
        self.call(requests.queue_unbind(queue, exchange, binding_key, arguments))

    def queue_purge(self, queue: str) -> int:
        """Drop a queue's ready messages; return how many.  Raises: NotFound (404)."""
        return self.call(requests.queue_purge(queue))

    def queue_delete(self, queue: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue; return how many messages went.  Raises: PreconditionFailed (406)."""
        return self.call(requests.queue_delete(queue, if_unused, if_empty))

    def exchange_declare(
        self,
        exchange: str,
        exchange_type: str = "direct",
        *,
        passive: bool = False,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Create an exchange, or with `passive` check that it is there.

        Raises: NotFound (404), PreconditionFailed (406), AccessRefused (403).
        """
        request = requests.exchange_declare(
            exchange, exchange_type, passive, durable, auto_delete, internal, arguments
        )
        self.call(request)

    def exchange_delete(self, exchange: str, *, if_unused: bool = False) -> None:
        """Delete an exchange.  Raises: PreconditionFailed (406), AccessRefused (403)."""
        self.call(requests.exchange_delete(exchange, if_unused))

    def exchange_bind(
        self,
        destination: str,
        source: str,
        binding_key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Bind exchange `destination` to exchange `source`.  Raises: NotFound (404)."""
        self.call(requests.exchange_bind(destination, source, binding_key, arguments))

    def exchange_unbind(
        self,
        destination: str,
        source: str,
        binding_key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Remove such a binding.  Raises: NotFound (404)."""
        self.call(requests.exchange_unbind(destination, source, binding_key, arguments))

    # -- publishing --------------------------------------------------------------------------------

    def confirm_select(self) -> None:
        """Have each publish from here on confirmed.  Raises: PreconditionFailed (406) after tx."""
        self.call(requests.confirm_select())

    def publish(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        properties: BasicProperties | None = None,
        *,
        mandatory: bool = False,
    ) -> None:
        """Publish a message; in confirm mode return when the broker has confirmed it.

        It waits while the broker blocks publishers or does not read.

        Raises: Nacked, Returned; the channel's error; ValueError for what cannot be written.
        """
        with self.connection.one_thread:
            self._wait_until_publishable()
            if self.session.confirms is None:
                self._put(body, exchange, routing_key, properties, mandatory, None)
                self.connection.flush()
                self.connection.read_what_came()
                return
            waiting = Waiting()
            self._put(body, exchange, routing_key, properties, mandatory, waiting)
            self.connection.run_until(lambda: waiting.done)
            waiting.check()

    def publish_nowait(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        properties: BasicProperties | None = None,
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish with the next call that sends, or when 64 KiB have gathered.

        Return the sequence in confirm mode, else 0.

        Raises: as `publish` without its confirm.
        """
        with self.connection.one_thread:
            self._wait_until_publishable()
            sequence = self._put(body, exchange, routing_key, properties, mandatory, None)
            if self.connection.session.output_bytes >= CLIENT_OUTPUT_BYTES_HIGH:
                self.connection.flush()
                self.connection.read_what_came()
            return sequence

    def wait_for_confirms(self) -> None:
        """Wait until all that was published so far is confirmed.

        Raises: Nacked or Returned for what `publish_nowait` sent; the channel's error; ValueError
        without confirm mode.
        """
        with self.connection.one_thread:
            confirms = self.session.confirms
            if confirms is None:
                raise ValueError("the channel is not in confirm mode")
            last = confirms.last
            self.connection.run_until(lambda: confirms.settled_to(last))
            if confirms.lost:
                self.session.check_open()
            failure = confirms.take_failure()
            if failure is not None:
                raise failure

    @property
    def may_publish(self) -> bool:
        """Whether the broker takes publishes now, as far as was read."""
        return self._flow_active and self.connection.blocked_reason is None

    def _wait_until_publishable(self) -> None:
        """Wait while the broker takes no publishes."""
        if not self.may_publish:
            self.connection.run_until(lambda: self._ended or self.may_publish)

    def tx_select(self) -> None:
        """Make the channel transactional.  Raises: PreconditionFailed (406) in confirm mode."""
        self.call(requests.tx_select())

    def tx_commit(self) -> None:
        """Do what was published and acked since the last commit.  Raises: PreconditionFailed."""
        self.call(requests.tx_commit())

    def tx_rollback(self) -> None:
        """Forget what was published and acked.  Raises: PreconditionFailed (406) without tx."""
        self.call(requests.tx_rollback())

    # -- consuming ---------------------------------------------------------------------------------

    def consume(
        self,
        queue: str,
        callback: Callback | None = None,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str = "",
        arguments: Mapping[str, object] | None = None,
        inactivity_timeout: float | None = None,
    ) -> Consumer:
        """Start a consumer: iterate it, or have `Connection.process` give messages to `callback`.

        An iteration ends after `inactivity_timeout` seconds without a message; it can be resumed.

        Raises: NotFound (404), AccessRefused (403), ResourceLocked (405).
        """
        request = requests.basic_consume(queue, consumer_tag, no_ack, exclusive, arguments)
        consumer = Consumer(self, callback, no_ack, inactivity_timeout)

        def take(reply: Replied) -> None:
            consumer.started(request.result(reply))
            self._consumers[consumer.consumer_tag] = consumer

        self._call(request.method, Call(take))
        return consumer

    def consume_columns(
        self,
        queue: str,
        *,
        arguments: Mapping[str, object] | None = None,
        with_properties: bool = True,
    ) -> ColumnConsumer:
        """Start a consumer of a stream whose deliveries come as columns, for readers of many.

        It is the channel's only consumer, and the connection's only one of its kind at a time; it
        ends with its channel.

        Raises: as `consume`; ValueError when the connection has one already.
        """
        session = self.connection.session
        if session.scanner is not None:
            raise ValueError("the connection has a consumer of columns already")
        session.scanner = scanner = DeliveryScanner(self.number, with_properties)
        return ColumnConsumer(self, self.consume(queue, arguments=arguments), scanner)

    def get(self, queue: str, *, no_ack: bool = False) -> Message | None:
        """Return one message, or None when the queue is empty.  Raises: NotFound (404)."""
        return self.call(requests.basic_get(queue, no_ack))

    def qos(
        self, prefetch_count: int = 0, *, prefetch_size: int = 0, global_: bool = False
    ) -> None:
        """Limit what is delivered before it is acked; 0 is no limit.

        It holds for consumers that start later, with `global_` for the whole channel.
        """
        self.call(requests.basic_qos(prefetch_count, prefetch_size, global_))

    def recover(self, *, requeue: bool = True) -> None:
        """Have this channel's unacked messages redelivered."""
        self.call(requests.basic_recover(requeue))

    # -- what the connection and the consumers need ------------------------------------------------

    def turn(self, deadline: float | None) -> None:
        """Send and read once, waiting until `deadline` at most if nothing comes."""
        self.connection.turn(deadline)

    def hold(self, size: int) -> None:
        """Count bytes of messages that came (or were handed out: negative)."""
        self.connection.hold(size)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Route nothing more to the consumer."""
        self._consumers.pop(consumer.consumer_tag, None)

    def delivered(self, message: Message) -> None:
        """Take a delivery."""
        consumer = self._consumers.get(message.consumer_tag)
        if consumer is None:
            log.debug("%r came for no consumer", message)
            return
        consumer.push(message)
        self.connection.hold(len(message.body) + CLIENT_MESSAGE_OVERHEAD_BYTES)
        if consumer.callback is not None:
            self.connection.ready.append(consumer)

    def consumer_cancelled(self, consumer_tag: str) -> None:
        """Take the broker's basic.cancel."""
        consumer = self._consumers.pop(consumer_tag, None)
        if consumer is not None:
            consumer.cancelled()
            self._report(consumer)

    def flow_changed(self, active: bool) -> None:
        """Take channel.flow: publishes wait while it is not active."""
        self._flow_active = active

    def settled(self, event: Settled) -> None:
        """Take confirms."""
        for token, failure in event.outcomes:
            token.end(failure)

    def ended(self, event: ChannelEnded) -> None:
        """Take the end of the channel."""
        self._ended = True
        error = event.error or Closed(f"channel {self.number} was closed")
        for token in event.tokens:
            token.end(error)
        consumers = list(self._consumers.values())
        self._consumers.clear()
        for consumer in consumers:
            consumer.ended(event.error)
            self._report(consumer)

    def _report(self, consumer: Consumer) -> None:
        """Have `Connection.process` raise what ended a consumer with a callback."""
        if consumer.callback is not None and consumer.error is not None:
            self.connection.failures.append(consumer.error)

    def _wrote(self) -> None:
        self.connection.flush()
