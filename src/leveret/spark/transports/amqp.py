"""The AMQP 0-9-1 transport: a stream consumer attached at an offset, with acks as credit.

It works with Leveret and with RabbitMQ, which differ in three points:

- `x-stream-offset: last` starts at the last message on Leveret, but at the last chunk on RabbitMQ,
  whose messages are read until no more arrive for `SILENCE_SECONDS`;
- a passive declare returns an exact message count on Leveret.  RabbitMQ's count is some seconds old
  (3.10 reports 0 right after a thousand confirmed messages), so a stream is treated as empty only
  if no message arrives for `EMPTY_SECONDS`;
- RabbitMQ skips offsets: at the start of a segment it stores internal entries in the stream, each
  with an offset.  So only offsets before the stream's first message count as lost.

Invariants: only messages that are safe by the broker's own rules are read, because it delivers no
others.  A message whose offset arrives again is dropped.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from leveret.client import InputFull, Message, Timestamp
from leveret.client.blocking import Channel, Connection, Consumer
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import SPARK_BATCH_BYTES, SPARK_BATCH_RECORDS
from leveret.spark.columns.deliveries import DeliveryBuilder
from leveret.spark.columns.messages import (
    STREAM_NAME,
    STREAM_OFFSET,
    STREAM_TIMESTAMP,
    stream_offset,
)
from leveret.spark.connection.connecting import (
    INTERRUPTIONS,
    address_of,
    interrupted,
    is_leveret,
    missing,
    open_connection,
)
from leveret.spark.options.read import OptionError, Options
from leveret.spark.transport import (
    Bounds,
    Interrupted,
    Piece,
    QueryReport,
    Redeclared,
    Tail,
    Transport,
)

if TYPE_CHECKING:
    from leveret.client.blocking.columns import ColumnConsumer, DeliveryColumns

#: How many messages are read to estimate the mean body size.
SAMPLE_RECORDS: Final = 200

#: How long to wait for messages of a stream that a broker other than Leveret reports as empty.
EMPTY_SECONDS: Final = 1.0

#: When reading the last chunk from other brokers: the silence that marks the end of the stream, and
#: how long to read a stream that is never silent.
SILENCE_SECONDS: Final = 0.25
FOLLOW_SECONDS_MAX: Final = 2.0

#: The silence after which a read checks whether the awaited messages still exist.
DOUBT_SECONDS: Final = 2.0

#: How far a clock may have been set back without a time bound excluding matching rows.
CLOCK_SLACK_MS: Final = 10 * 60_000


#: Consumer arguments of Leveret: the expected id of the stream; the request to append a dot and the
#: stream's id to the consumer tag that the broker generates; and the report of a query.  RabbitMQ
#: has no stream ids.
STREAM_ID: Final = "x-stream-id"
TELL_STREAM_ID: Final = "x-stream-tell-id"
QUERY: Final = "x-spark-query"


class AmqpTransport(Transport):
    """One AMQP connection for one stream, opened on first use."""

    def __init__(self, options: Options, stream: str, schema: StructType) -> None:
        self._options = options
        self._stream = stream
        self._builder = DeliveryBuilder(stream, schema, options.partition_of(stream))
        self._connection: Connection | None = None
        self._report: QueryReport | None = None

    def report(self, report: QueryReport) -> None:
        """Report the query to Leveret with each following consumer."""
        self._report = report

    # -- the ends of the stream --------------------------------------------------------------------

    def earliest(self) -> int:
        """Return the first message's offset, or 0 for an empty stream.  Raises: Interrupted."""
        return self._earliest()[0]

    def _earliest(self) -> tuple[int, str | None]:
        with self._channel() as channel:
            consumer, message = self._first(channel, "first", 1)
            return 0 if message is None else _offset(message), _stream_id(consumer)

    def tail(self) -> Tail:
        """Return the stream's end, or 0 for an empty stream, and its id.  Raises: Interrupted."""
        with self._channel() as channel:
            prefetch = 1 if self._is_leveret else self._options.prefetch
            consumer, message = self._first(channel, "last", prefetch)
            if message is not None and not self._is_leveret:
                message = _follow(consumer, message)
            return Tail(0 if message is None else _offset(message) + 1, _stream_id(consumer))

    def bounds(self) -> Bounds:
        """Return both ends and the id.  Raises: Interrupted; NotFound (404)."""
        earliest, stream_id = self._earliest()
        tail = self.tail()
        if tail.stream_id != stream_id:
            raise Interrupted("the stream was just deleted and declared again")
        return Bounds(earliest, max(earliest, tail.latest), stream_id)

    def _first(
        self, channel: Channel, where: str, prefetch: int
    ) -> tuple[Consumer, Message | None]:
        """Attach a consumer; return it with the first message, or None for an empty stream.

        Raises: Interrupted if the broker counts messages but sends none; OptionError if the name
        is a super stream's.
        """
        count = channel.queue_declare(self._stream, passive=True).message_count
        if count == 0 and self._is_leveret:
            return self._attach(channel, "next", prefetch, EMPTY_SECONDS), None
        seconds = self._poll_seconds if count > 0 else EMPTY_SECONDS
        consumer = self._attach(channel, where, prefetch, seconds)
        message = next(consumer, None)
        if message is None and count > 0:
            raise Interrupted(f"the broker counts {count} messages but sent none in {seconds} s")
        if message is not None and message.headers.get(STREAM_NAME, self._stream) != self._stream:
            # Leveret would send the messages of all partitions, with offsets of different streams.
            raise OptionError(
                f"{self._stream!r} is a super stream: read it by the option superStream"
            )
        return consumer, message

    def offset_at(self, timestamp_ms: int) -> int:
        """Return the first offset at or after a time.  Raises: Interrupted; NotFound (404).

        RabbitMQ records times only for chunks, and this argument has only seconds.
        """
        latest = self.latest()
        if self._is_leveret and self._ends_before(timestamp_ms):
            return latest
        with self._channel() as channel:
            moment = Timestamp(timestamp_ms // 1000)
            seconds = self._poll_seconds if self._is_leveret else EMPTY_SECONDS
            for message in self._credited(channel, self._attach(channel, moment, 100, seconds)):
                if not self._is_leveret or _timestamp_ms(message) >= timestamp_ms:
                    return _offset(message)
        return latest

    def end_at(self, timestamp_ms: int) -> int:
        """Return an offset after all messages before a time, allowing for `CLOCK_SLACK_MS`.

        Raises: Interrupted; NotFound (404).
        """
        return self.offset_at(timestamp_ms + CLOCK_SLACK_MS)

    def _ends_before(self, timestamp_ms: int) -> bool:
        """Return whether the stream is empty or its newest message is older than a time."""
        with self._channel() as channel:
            _, message = self._first(channel, "last", 1)
            return message is None or _timestamp_ms(message) < timestamp_ms

    def mean_bytes(self, start: int, end: int) -> float:
        """Return the mean size of a range's first bodies.  Raises: Interrupted; NotFound (404)."""
        sizes: list[int] = []
        with self._channel() as channel:
            consumer = self._attach(channel, start, SAMPLE_RECORDS, SILENCE_SECONDS)
            for message in itertools.islice(consumer, SAMPLE_RECORDS):
                if _offset(message) >= end:
                    break
                sizes.append(len(message.body))
                if len(sizes) == end - start:
                    break
        return sum(sizes) / max(1, len(sizes))

    def keeps_time(self) -> bool:
        """Return whether each message has its own time, as in Leveret.  Raises: Interrupted."""
        try:
            return self._is_leveret
        except INTERRUPTIONS as error:
            raise interrupted(error) from error

    @property
    def _is_leveret(self) -> bool:
        return is_leveret(self._connected())

    def is_loss(self, missing: int) -> bool:
        """Return whether a missing offset was a message's.  Raises: Interrupted; NotFound (404)."""
        return self._is_leveret or self.earliest() > missing

    # -- reading -----------------------------------------------------------------------------------

    def read(self, start: int, end: int, stream_id: str | None = None) -> Iterator[Piece]:
        """Yield the stream's messages in a range.  Raises: Interrupted; NotFound; Redeclared."""
        with self._channel() as channel:
            channel.qos(self._options.prefetch)
            consumer = self._reading(channel, start, stream_id)
            for columns in self._gathered(channel, consumer, start, end):
                yield from self._builder.pieces(columns, start, end)

    def _reading(self, channel: Channel, start: int, stream_id: str | None) -> ColumnConsumer:
        """Attach at an offset.  Raises: Redeclared if the stream has another id."""
        arguments = self._arguments(start)
        if stream_id is not None and self._is_leveret:
            arguments[STREAM_ID] = stream_id
        try:
            return channel.consume_columns(
                self._stream,
                arguments=arguments,
                with_properties=self._builder.with_properties,
            )
        except PreconditionFailed:
            found = self.tail().stream_id
            if stream_id is None or found in (None, stream_id):
                raise
            raise Redeclared(stream_id, found) from None

    def _gathered(
        self, channel: Channel, consumer: ColumnConsumer, start: int, end: int
    ) -> Iterator[DeliveryColumns]:
        """Yield batches of messages until the end of the range or of the stream.

        Raises: Interrupted if the broker has messages but does not send them.
        """
        period = max(1, self._options.prefetch // 2)
        seen = acked = 0
        while consumer.last_offset + 1 < end and self._answers(consumer, seen, start):
            seen = consumer.delivery_tag
            if seen - acked >= period:
                acked = seen
                channel.ack(acked, multiple=True)
            is_full = consumer.body_bytes >= SPARK_BATCH_BYTES
            if is_full or consumer.count >= SPARK_BATCH_RECORDS:
                yield consumer.take()
        if consumer.count > 0:
            yield consumer.take()

    def _answers(self, consumer: ColumnConsumer, seen: int, start: int) -> bool:
        """Wait for a message after delivery `seen`; return False if the broker has none.

        Raises: Interrupted if the broker has one but does not send it.
        """
        heard = time.monotonic()
        while not consumer.wait(seen, min(DOUBT_SECONDS, self._poll_seconds)):
            if self.latest() <= max(start, consumer.last_offset + 1):
                return False
            silence = time.monotonic() - heard
            if silence >= self._poll_seconds:
                raise Interrupted(f"the broker sent nothing for {silence:.1f} s")
        return True

    def _credited(self, channel: Channel, messages: Iterator[Message]) -> Iterator[Message]:
        """Yield messages and ack them, so that the broker sends more."""
        period = max(1, self._options.prefetch // 2)
        for count, message in enumerate(messages, 1):
            if count % period == 0:
                channel.ack(message.delivery_tag, multiple=True)
            yield message

    def _attach(
        self,
        channel: Channel,
        where: str | int | Timestamp,
        prefetch: int,
        inactivity_seconds: float,
    ) -> Consumer:
        channel.qos(prefetch)
        arguments = self._arguments(where)
        if self._is_leveret:
            arguments[TELL_STREAM_ID] = True
        return channel.consume(
            self._stream,
            arguments=arguments,
            inactivity_timeout=inactivity_seconds,
        )

    def _arguments(self, where: str | int | Timestamp) -> dict[str, object]:
        """Return the arguments of a consumer that starts at an offset or time."""
        arguments: dict[str, object] = {STREAM_OFFSET: where}
        if self._report is not None and self._is_leveret:
            arguments[QUERY] = self._report.fields()
        return arguments

    # -- the connection ----------------------------------------------------------------------------

    @property
    def _poll_seconds(self) -> float:
        return self._options.poll_timeout_ms / 1000

    @contextmanager
    def _channel(self) -> Iterator[Channel]:
        """Open a channel; an interruption closes the connection.  Raises: Interrupted."""
        try:
            channel = self._connected().channel()
            try:
                yield channel
            finally:
                if channel.is_open:
                    channel.close()
        except NotFound:
            where = self._options.parameters()
            raise missing("stream", self._stream, where.vhost, address_of(where)) from None
        except INTERRUPTIONS as error:
            self.close()
            raise interrupted(error) from error
        except InputFull:
            self.close()
            raise

    def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            name = f"leveret spark {self._stream}"
            self._connection = open_connection(self._options.parameters(), name)
        return self._connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except INTERRUPTIONS:
                return  # it is already closed


def _follow(consumer: Consumer, message: Message | None) -> Message | None:
    """Read messages until none arrives for `SILENCE_SECONDS`, and return the last one."""
    consumer.inactivity_timeout = SILENCE_SECONDS
    until = time.monotonic() + FOLLOW_SECONDS_MAX
    while message is not None and time.monotonic() < until:
        message.ack()
        following = next(consumer, None)
        if following is None:
            break
        message = following
    return message


def _timestamp_ms(message: Message) -> int:
    """Return the time at which Leveret received a message."""
    moment = message.headers.get(STREAM_TIMESTAMP)
    return moment if isinstance(moment, int) else 0


def _offset(message: Message) -> int:
    """Return a message's offset.  Raises: OptionError if it is not from a stream."""
    offset = stream_offset(message)
    if offset is None:
        raise OptionError(
            "the broker sent no x-stream-offset: the queue is not a stream; the option queue reads "
            "a queue"
        )
    return offset


def _stream_id(consumer: Consumer) -> str | None:
    """Return the id of a consumer's stream, or None if the broker does not report it."""
    tag, dot, stream_id = consumer.consumer_tag.rpartition(".")
    return stream_id if dot and tag.startswith("amq.ctag-") else None
