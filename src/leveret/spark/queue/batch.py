"""The batch read of a queue, which removes no messages (`ackMode=none`).

With Leveret, one task browses the queue (`x-browse`), which has no effect on it.  With other
brokers, the task consumes the messages in order without acking them, and returns them when it has
read them.  They are then marked as redelivered, and a quorum queue counts a delivery.  While the
task reads, neither other consumers nor a second read of the same query get them.

A batch read that acked messages could lose them, because Spark does not notify a Python source that
a batch query has succeeded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from leveret.client import ConsumerCancelled, InputFull, Message
from leveret.client.blocking import Channel, Consumer
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import SPARK_BATCH_BYTES, SPARK_BATCH_RECORDS
from leveret.spark.columns.messages import BatchBuilder
from leveret.spark.columns.projection import Projection
from leveret.spark.connection.connecting import (
    INTERRUPTIONS,
    address_of,
    interrupted,
    is_leveret,
    missing,
    open_connection,
)
from leveret.spark.connection.retries import ask
from leveret.spark.entries import entries
from leveret.spark.options.read import OptionError, Options
from leveret.spark.queue.feed import DOUBT_SECONDS, check_kind, is_a_stream
from leveret.spark.queue.ready import ready_count
from leveret.spark.transport import Interrupted

#: The largest prefetch count in AMQP; above it, no prefetch count is set.
_PREFETCH_MAX: Final = 65_535

#: Brokers name this argument when they refuse a consumer of a stream without it.
_STREAM_OFFSET: Final = "x-stream-offset"


@dataclass(frozen=True)
class Browse(InputPartition):
    """The first `count` messages of the queue."""

    count: int


@entries
class QueueBatchReader(DataSourceReader):
    """Counts the messages on the driver, and reads them in one task."""

    def __init__(self, options: Options, schema: StructType) -> None:
        assert options.queue is not None
        self._options = options.for_batch()
        if "ackMode" in options.given and options.ack_mode != "none":
            raise OptionError(
                "option 'ackMode': a batch read of a queue only browses (none): to consume "
                "messages, use a streaming read, for example with trigger(availableNow=True)"
            )
        if options.spool_dir is not None:
            raise OptionError("option 'spoolDir' belongs to a streaming read")
        self._queue = options.queue
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return one partition of the queue's current messages.  Raises: Interrupted; NotFound."""
        count = ask(self._options, f"queue {self._queue!r}", self._count)
        return [Browse(count)] if count else []

    def _count(self) -> int:
        with self._channel() as channel:
            return self._ready(channel)

    def _ready(self, channel: Channel) -> int:
        """Return the broker's count of ready messages."""
        return ready_count(channel, self._queue, self._options.poll_timeout_ms / 1000)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages and return them to the queue.  Raises: Interrupted; NotFound (404)."""
        if not isinstance(partition, Browse):
            return  # Spark plans a read without partitions as one of its own type
        projection = Projection(self._options, self._schema)
        builder = BatchBuilder(self._queue, projection.needed)
        start = 0
        messages: list[Message] = []
        size = 0
        for message in self._browse(partition.count):
            messages.append(message)
            size += len(message.body)
            if len(messages) >= SPARK_BATCH_RECORDS or size >= SPARK_BATCH_BYTES:
                yield projection.apply(builder.build(start, messages))
                start += len(messages)
                messages = []
                size = 0
        if messages:
            yield projection.apply(builder.build(start, messages))

    def _browse(self, count: int) -> Iterator[Message]:
        """Yield `count` messages, or fewer if other consumers take some."""
        with self._channel() as channel:
            channel.qos(count if count <= _PREFETCH_MAX else 0)
            try:
                consumer = channel.consume(
                    self._queue,
                    arguments={"x-browse": True} if is_leveret(channel.connection) else None,
                    inactivity_timeout=DOUBT_SECONDS,
                )
            except PreconditionFailed as error:
                if _STREAM_OFFSET in error.text:
                    raise is_a_stream(self._queue) from None
                raise
            for number in range(count):
                message = self._next(channel, consumer)
                if message is None:
                    return
                if number == 0:
                    check_kind(self._queue, message)
                yield message

    def _next(self, channel: Channel, consumer: Consumer) -> Message | None:
        """Return the next message, or None if the queue is empty.

        Raises: Interrupted if the queue has messages but sends none.
        """
        until = time.monotonic() + self._options.poll_timeout_ms / 1000
        while True:
            try:
                message = next(consumer, None)
            except ConsumerCancelled:
                return None  # the end of the browsed messages, or of the queue
            if message is not None or self._ready(channel) == 0:
                return message
            if time.monotonic() >= until:
                raise Interrupted("the broker counts messages but sends none")

    @contextlib.contextmanager
    def _channel(self) -> Iterator[Channel]:
        """Open a channel; closing it returns unacked messages.  Raises: Interrupted; NotFound."""
        try:
            name = f"leveret spark queue {self._queue}"
            connection = open_connection(self._options.parameters(), name)
            try:
                yield connection.channel()
            finally:
                with contextlib.suppress(*INTERRUPTIONS, InputFull):
                    connection.close()
        except NotFound:
            where = self._options.parameters()
            raise missing("queue", self._queue, where.vhost, address_of(where)) from None
        except INTERRUPTIONS as error:
            raise interrupted(error) from error
