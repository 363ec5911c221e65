"""A blocking channel: each call returns when its AMQP operation is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from leveret.client.blocking.calls import Call, Waiting, waited_for
from leveret.client.blocking.columns import ColumnConsumer
from leveret.client.blocking.consumer import Consumer
from leveret.client.options import PublishArguments, shows_options, with_options
from leveret.client.shell import requests
from leveret.client.shell.channel import ShellChannel
from leveret.client.shell.rpc import of_reply
from leveret.client.shell.traced import TracedShellChannel, in_span
from leveret.limits import CLIENT_OUTPUT_BYTES_HIGH
from leveret.wire.content.deliveries import DeliveryScanner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.blocking.connection import Connection
    from leveret.client.blocking.consumer import Callback
    from leveret.client.events import ChannelEnded, Replied, Token
    from leveret.client.message import Message
    from leveret.client.shell.channel import Body
    from leveret.wire.method import Method
    from leveret.wire.properties import BasicProperties

T = TypeVar("T")


class Channel(ShellChannel):
    """One channel; created by `Connection.channel`.

    `with` closes it.  After the broker has closed it, every call raises the same error.

    Raises: ConnectionInUse from every call that overlaps with a call of another thread.
    """

    def __init__(self, connection: Connection, opening: Token) -> None:
        super().__init__(connection, opening)
        #: The connection of this channel.
        self.connection = connection
        self._guard = connection.one_thread
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self, code: int = 200, text: str = "") -> None:
        """Close the channel; its unacked messages are requeued.  Do nothing if it has ended.

        `code` and `text` tell the broker the reason.
        """
        with self._guard:
            if not self._ended:
                self.close_session(code, text)
                self.connection.run_until(lambda: self._ended)

    def call(self, request: requests.Request[T]) -> T:
        """Send a request and return its result.

        Raises: the channel's error; ValueError for an invalid argument.
        """
        return self._call(request.method, Call(request.result))

    def _call(self, method: Method, call: Call[T]) -> T:
        """Send a method and wait until its token is resolved."""
        with self._guard:
            self.connection.wait_until_recovered()
            self.session.request(method, call)
            self.connection.wait_for(call)
            return call.result()

    queue_declare = waited_for(requests.queue_declare)
    queue_bind = waited_for(requests.queue_bind)
    queue_unbind = waited_for(requests.queue_unbind)
    queue_purge = waited_for(requests.queue_purge)
    queue_delete = waited_for(requests.queue_delete)

    exchange_declare = waited_for(requests.exchange_declare)
    exchange_delete = waited_for(requests.exchange_delete)
    exchange_bind = waited_for(requests.exchange_bind)
    exchange_unbind = waited_for(requests.exchange_unbind)

    confirm_select = waited_for(requests.confirm_select)
    tx_select = waited_for(requests.tx_select)
    tx_commit = waited_for(requests.tx_commit)
    tx_rollback = waited_for(requests.tx_rollback)

    get = waited_for(requests.get)
    qos = waited_for(requests.qos)
    recover = waited_for(requests.recover)

    # -- publishing --------------------------------------------------------------------------------

    @shows_options(PublishArguments)
    def publish(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        properties: BasicProperties | None = None,
        *,
        mandatory: bool = False,
        persistent: bool = True,
        **options: Unpack[PublishArguments],
    ) -> None:
        """Publish a message; in confirm mode, return when the broker has confirmed it.

        `body` is bytes, a bytearray or a memoryview.  The exchange routes the message by
        `routing_key`; the default exchange "" passes it to the queue of that name.  If no queue
        takes a `mandatory` message, the broker returns it; other messages are dropped then.  A
        `persistent` message survives a restart of the broker in a durable queue.

        The options `headers`, `priority`, `expiration`, `delay` and so on set properties, and take
        precedence over `properties`; times are in seconds.  A delivery mode in the properties takes
        precedence over `persistent`.  `publish` waits while the broker blocks publishers or does
        not read.

        Raises: Nacked, Returned; the channel's error; ValueError for an invalid argument.
        """
        if options:
            properties = with_options(properties, options)
        with self._guard:
            self._wait_until_publishable()
            if self.session.confirms is None:
                self._put(body, exchange, routing_key, properties, mandatory, persistent, None)
                self.connection.flush()
                self.connection.read_what_came()
                return
            waiting = Waiting()
            self._put(body, exchange, routing_key, properties, mandatory, persistent, waiting)
            self.connection.wait_for(waiting)
            waiting.check()

    @shows_options(PublishArguments)
    def publish_nowait(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        properties: BasicProperties | None = None,
        *,
        mandatory: bool = False,
        persistent: bool = True,
        **options: Unpack[PublishArguments],
    ) -> int:
        """Buffer a message, to be sent by the next call that sends or when 64 KiB are buffered.

        The arguments are those of `publish`.  Return the message's sequence number on this channel
        in confirm mode, else 0.  `wait_for_confirms` waits for the confirms, and raises if a
        message failed.  Like `publish`, this call waits while the broker blocks publishers or does
        not read, and while a lost connection is recovered.

        Raises: as `publish` outside confirm mode.
        """
        if options:
            properties = with_options(properties, options)
        with self._guard:
            if not (self.connection.is_calm and self._flow_active):
                self._wait_until_publishable()
            sequence = self._put(
                body, exchange, routing_key, properties, mandatory, persistent, None
            )
            if self.connection.session.output_bytes >= CLIENT_OUTPUT_BYTES_HIGH:
                self.connection.flush()
                self.connection.read_what_came()
            return sequence

    @shows_options(PublishArguments)
    def reply(self, request: Message, body: Body, **options: Unpack[PublishArguments]) -> None:
        """Publish the reply to a request; do nothing if its sender expects none.

        The reply is transient and has the request's correlation ID.  The options are those of
        `publish`.

        Raises: as `publish`.
        """
        routing_key = of_reply(request, options)
        if routing_key:
            self.publish(body, routing_key=routing_key, persistent=False, **options)

    def wait_for_confirms(self) -> None:
        """Wait until every message published so far is confirmed.

        Raises: Nacked or Returned for messages from `publish_nowait`; the channel's error;
        ValueError outside confirm mode.
        """
        with self._guard:
            confirms = self._confirms()
            last = confirms.last
            self.connection.run_until(lambda: confirms.settled_to(last))
            self._check_confirms(confirms)

    @property
    def may_publish(self) -> bool:
        """Whether the broker accepts publishes, as of the last input read."""
        connection = self.connection
        return (
            self._flow_active
            and connection.blocked_reason is None
            and not connection.is_recovering
            and connection.has_room
        )

    def _wait_until_publishable(self) -> None:
        """Wait until the broker accepts publishes."""
        if not self.may_publish:
            self.connection.run_until(lambda: self._ended or self.may_publish)
        self.connection.is_calm = not self._ended

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
        """Start a consumer; iterate it, or let `Connection.process` call `callback`.

        Iteration stops after `inactivity_timeout` seconds without a message (None: never) and can
        be resumed.

        Messages of a consumer with `no_ack` need no ack, and are lost if this program fails.  While
        an `exclusive` consumer runs, the queue has no other.  Without a `consumer_tag`, the broker
        generates one.  `arguments` are those of the broker; `stream_arguments` makes those of a
        stream.

        Raises: NotFound (404); AccessRefused (403), also if the queue has an exclusive consumer, or
        has others and this one is exclusive; ResourceLocked (405).
        """
        request = requests.consume(queue, consumer_tag, no_ack, exclusive, arguments)
        handler = self._handler(callback) if callback is not None else None
        consumer = Consumer(self, queue, handler, no_ack, inactivity_timeout)

        def take(reply: Replied) -> None:
            consumer.started(request.result(reply))
            self.add_consumer(consumer)

        self._call(request.method, Call(take))
        return consumer

    def _handler(self, callback: Callback) -> Callback:
        """Return the function that a consumer calls for `callback`."""
        return callback

    def consume_columns(
        self,
        queue: str,
        *,
        arguments: Mapping[str, object] | None = None,
        with_properties: bool = True,
    ) -> ColumnConsumer:
        """Start a consumer of a stream that returns deliveries as columns, for bulk readers.

        The consumer must be the only one on its channel and the only column consumer on its
        connection.  It ends with its channel.

        Raises: as `consume`; ValueError when the connection already has a column consumer.
        """
        with self._guard:
            session = self.connection.session
            if session.scanner is not None:
                raise ValueError("the connection already has a column consumer")
            session.scanner = scanner = DeliveryScanner(self.number, with_properties)
            return ColumnConsumer(self, self.consume(queue, arguments=arguments), scanner)

    # -- events of the connection ------------------------------------------------------------------

    def ended(self, event: ChannelEnded) -> None:
        """Handle the end of the channel."""
        self._ended = True
        super().ended(event)

    def _wrote(self) -> None:
        self.connection.flush()

    def _acked(self) -> None:
        self.connection.acked(self.session.acks)


class TracedChannel(TracedShellChannel, Channel):
    """A channel that records spans of its messages; used if `connect` received `tracing`."""

    publish = in_span(Channel.publish)
    publish_nowait = in_span(Channel.publish_nowait)

    def _handler(self, callback: Callback) -> Callback:
        """Wrap `callback` so that it runs inside a span."""

        def handle(message: Message) -> None:
            with self._handling(message):
                callback(message)

        return handle
