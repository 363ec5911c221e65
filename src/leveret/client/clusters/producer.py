"""A producer for a topic: each delivery returns an acknowledgement with its outcome.

Deliveries are persistent and mandatory, so CONFIRMED means that every subscribed cluster has the
message on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, Unpack

from leveret.client.asynchronous import connect
from leveret.client.clusters.membership import FAILURES
from leveret.client.clusters.names import checked_name
from leveret.client.clusters.topology import declare_topic
from leveret.client.errors import Closed, Nacked, Returned
from leveret.client.names import checked
from leveret.client.options import MessageArguments, shows_options, split, with_options
from leveret.wire.properties import PERSISTENT, BasicProperties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.client.addresses import Address
    from leveret.client.asynchronous import Channel, Connection
    from leveret.client.options import ConnectOptions
    from leveret.client.shell.channel import Body


class DeliveryStatus(enum.Enum):
    """The outcome of a delivery."""

    CONFIRMED = "confirmed"
    """Every cluster of the topic has the message."""
    RETURNED = "returned"
    """No cluster is subscribed to the topic, so the message was not stored."""
    REFUSED = "refused"
    """A cluster's queue is full and refused the message; other clusters may have it."""
    FAILED = "failed"
    """It is unknown whether the broker has the message; `error` gives the reason."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The outcome of one delivery."""

    #: The outcome.
    status: DeliveryStatus
    #: The message ID, which `deliver` generates if the properties have none.
    message_id: str
    #: Why the outcome is unknown, for FAILED; otherwise None.
    error: Exception | None = None

    @property
    def is_confirmed(self) -> bool:
        """Whether every cluster of the topic has the message."""
        return self.status is DeliveryStatus.CONFIRMED


class Outgoing(NamedTuple):
    """One message for `Producer.deliver_many`, which also accepts a plain tuple."""

    #: The body: bytes, a bytearray or a memoryview.
    body: Body
    #: The key; messages with the same key stay in order in clusters with partitions.
    key: str = ""
    #: The properties, or None for the defaults of `deliver`.
    properties: BasicProperties | None = None


#: The default maximum of unacknowledged deliveries: enough to share disk syncs.
WINDOW: Final = 1000


class Producer:
    """A producer for topic `topic`, which it creates if necessary.

    It connects on the first delivery or on `start`, and reconnects after a lost connection.
    At most `window` deliveries are unacknowledged at once; further deliveries wait before they are
    sent.  `close` waits at most `close_timeout` seconds for acknowledgements.  `uri` and
    `options` are those of `leveret.client.connect`.  `async with` starts and closes it.

    Raises: ValueError or TypeError with the argument's name.
    """

    def __init__(
        self,
        topic: str,
        *,
        uri: Address = None,
        window: int = WINDOW,
        close_timeout: float = 30.0,
        **options: Unpack[ConnectOptions],
    ) -> None:
        if window < 1:
            raise ValueError(f"window is {window}: it must be at least 1")
        #: The topic.
        self.topic = checked_name("topic", topic)
        self._uri = uri
        split(options)  # refuses unknown arguments
        self._options = options
        self._window = window
        self._close_timeout = close_timeout
        self._places = asyncio.Semaphore(window)
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._is_closed = False  # no new deliveries
        self._is_over = False  # no acknowledgements either
        self._under_way: set[asyncio.Future[None]] = set()

    # -- opening and closing -----------------------------------------------------------------------

    async def start(self) -> Self:
        """Connect and declare the topic.

        Raises: as `connect`; ClusterMismatch if an exchange of another type has the topic's name;
        AccessRefused (403); Closed after `close`.
        """
        await self._open_channel()
        return self

    async def close(self) -> None:
        """Wait for pending acknowledgements, then close the connection.

        Deliveries that are not acknowledged within `close_timeout` end as FAILED.
        """
        self._is_closed = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=self._close_timeout)
        self._is_over = True
        async with self._opening:
            if self._connection is not None:
                with contextlib.suppress(*FAILURES):
                    await self._connection.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # -- delivering --------------------------------------------------------------------------------

    @shows_options(MessageArguments)
    async def deliver(
        self,
        body: Body,
        key: str = "",
        *,
        properties: BasicProperties | None = None,
        **options: Unpack[MessageArguments],
    ) -> Acknowledgement:
        """Deliver a message to every cluster of the topic; return the outcome.

        Messages with the same `key` stay in order in clusters with partitions.  A message without a
        message ID gets a random one.  The options set properties, and take precedence over
        `properties`; an `expiration` is in seconds.  Broker failures are reported in the
        acknowledgement, not raised.

        Raises: Closed after `close`; ValueError or TypeError for an invalid argument.
        """
        if self._is_closed:
            raise Closed(f"the producer of topic {self.topic!r} is closed")
        checked("key", key)
        if options:
            properties = with_options(properties, options, MessageArguments)
        properties = _completed(properties)
        properties.encode()  # refuses invalid properties before anything is sent
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.add(done)
        try:
            async with self._places:
                return await self._publish(body, key, properties)
        finally:
            self._under_way.discard(done)
            done.set_result(None)

    async def deliver_many(
        self, messages: Iterable[Body | Outgoing | tuple[Any, ...]]
    ) -> list[Acknowledgement]:
        """Deliver messages in order; return an acknowledgement for each, in the same order.

        A message is a body, or an `Outgoing` or a tuple of its fields.

        Raises: as `deliver`; messages before the invalid one may have been delivered.
        """
        acknowledgements: list[Acknowledgement] = []
        pending: list[asyncio.Task[Acknowledgement]] = []
        try:
            for message in messages:
                body, key, properties = Outgoing(
                    *(message if isinstance(message, tuple) else (message,))
                )
                pending.append(
                    asyncio.ensure_future(self.deliver(body, key, properties=properties))
                )
                if len(pending) == self._window:
                    acknowledgements += await asyncio.gather(*pending)
                    pending = []
            acknowledgements += await asyncio.gather(*pending)
        finally:
            for task in pending:
                task.cancel()
        return acknowledgements

    async def _publish(self, body: Body, key: str, properties: BasicProperties) -> Acknowledgement:
        """Publish once and return the outcome."""
        status, failure = DeliveryStatus.CONFIRMED, None
        try:
            channel = await self._open_channel()
            await channel.publish(body, self.topic, key, properties, mandatory=True)
        except Returned:
            status = DeliveryStatus.RETURNED
        except Nacked:
            status = DeliveryStatus.REFUSED
        except FAILURES as error:
            status, failure = DeliveryStatus.FAILED, error
        assert properties.message_id is not None, "it was completed"
        return Acknowledgement(status, properties.message_id, failure)

    async def _open_channel(self) -> Channel:
        """Return the channel; reopen it if it has ended.  Raises: as `start`."""
        if self._channel is not None and self._channel.is_open:
            return self._channel
        async with self._opening:
            if self._channel is not None and self._channel.is_open:
                return self._channel
            if self._is_over:
                raise Closed(f"the producer of topic {self.topic!r} is closed")
            if self._connection is None or not (
                self._connection.is_open or self._connection.is_recovering
            ):
                self._connection = await connect(self._uri, **self._options)
            try:
                channel = await self._connection.channel()
                await declare_topic(channel, self.topic)
                await channel.confirm_select()
            except BaseException:
                await self._connection.close()
                raise
            self._channel = channel
            return channel


def _completed(properties: BasicProperties | None) -> BasicProperties:
    """Return the properties with defaults: a random message ID, and persistent delivery."""
    given: dict[str, Any] = {"delivery_mode": PERSISTENT, "message_id": str(uuid.uuid4())}
    if properties is not None:
        for name in BasicProperties.FIELDS:
            if (value := getattr(properties, name)) is not None:
                given[name] = value
    return BasicProperties(**given)
