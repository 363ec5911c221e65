"""One Spark task of a sink: its rows become messages, all confirmed before the task succeeds.

The way to keep a row from being written twice (option `dedup`) is chosen here, when the broker is
known: `staged` if it supports that, `rows` or a column of publishing ids on request, else none.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from leveret.client import ReturnedMessage, Timestamp
from leveret.client.blocking import Connection
from leveret.spark.connection.connecting import is_leveret
from leveret.spark.options.read import OptionError
from leveret.spark.write.encoder import SPARK_WRITE_PIECE_RECORDS, Encoder, Envelope
from leveret.spark.write.link import Sender, WriteError, close_link, open_link
from leveret.spark.write.options import WriteOptions
from leveret.spark.write.rows import PUBLISHER, RowError
from leveret.spark.write.schema import Layout
from leveret.spark.write.staging import Job, StagedCount, TaskQueue
from leveret.spark.write.topics import Topics

#: The local properties that Spark gives its tasks.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
_SPECULATION: Final = "spark.speculation"

#: Publishing ids are `batch << 32 | row`.
_ROW_BITS: Final = 32

#: The reason of a message in the dead-letter exchange, as Leveret gives it for a staged one.
_UNROUTABLE: Final = "unroutable"


class WrittenRows(WriterCommitMessage):
    """The result of one task: the number of rows, and their staging queue, if they have one.

    The broker had received `known` of the rows before and dropped them, and no queue took
    `unroutable` of them; for staged rows only the broker knows both numbers.
    """

    def __init__(
        self, job: Job, rows: int, staged: StagedCount | None, known: int = 0, unroutable: int = 0
    ) -> None:
        self.job = job
        self.rows = rows
        self.staged = staged
        self.known = known
        self.unroutable = unroutable


@dataclass(frozen=True, slots=True)
class SparkTask:
    """The identity of a task."""

    partition: int
    query: str | None
    batch: int | None

    def job(self, destination: str) -> Job:
        """Return the batch of a streaming query."""
        if self.query is None or self.batch is None:
            raise WriteError("Spark did not tell the task its query and batch")
        return Job(self.query, self.batch, destination)


def current_task() -> SparkTask:
    """Return the task of this process.  Raises: OptionError with speculative execution."""
    context = TaskContext.get()
    if context is None:
        raise WriteError("a sink can only write inside Spark's tasks")
    if context.getLocalProperty(_SPECULATION) == "true":
        raise OptionError(
            "spark.speculation: two tasks would write the same rows at once; turn it off for a "
            "session that writes to a broker"
        )
    batch = context.getLocalProperty(BATCH_ID)
    return SparkTask(
        context.partitionId(),
        context.getLocalProperty(QUERY_ID),
        None if batch is None else int(batch),
    )


# -- publishing ids --------------------------------------------------------------------------------


class RowNumbers:
    """Ids from the positions of rows, for tasks that repeat the same rows in the same order."""

    def __init__(self, batch: int) -> None:
        self._next = batch << _ROW_BITS
        self._end = (batch + 1) << _ROW_BITS

    def of(self, batch: pa.RecordBatch) -> Any:
        """Return the ids of the next rows."""
        first, self._next = self._next, self._next + batch.num_rows
        if self._next > self._end:
            raise WriteError(f"a task has more than {2**_ROW_BITS} rows: repartition")
        return np.arange(first, self._next, dtype=np.int64)


class ColumnNumbers:
    """Ids from a column; they must increase, because the broker drops others."""

    def __init__(self) -> None:
        self._last = -1

    def of(self, batch: pa.RecordBatch) -> Any:
        """Return the ids of the next rows.  Raises: RowError."""
        column = batch.column("publishing_id")
        if column.null_count:
            raise RowError("column 'publishing_id' is null")
        ids = column.to_numpy().astype(np.int64)
        before = np.concatenate(([self._last], ids[:-1]))
        wrong = np.flatnonzero(ids <= before)
        if wrong.size:
            at = int(wrong[0])
            raise RowError(
                f"column 'publishing_id': {ids[at]} follows {before[at]}, and must be greater: the "
                "broker would drop the row as a repeated one"
            )
        self._last = int(ids[-1])
        return ids


# -- the task --------------------------------------------------------------------------------------


class TaskWriter:
    """Publishes the rows of one task; created with its first rows."""

    def __init__(self, options: WriteOptions, layout: Layout, job: Job, task: SparkTask) -> None:
        self._options = options
        self._job = job
        self._rows = 0
        self._unroutable = 0
        self._numbers: RowNumbers | ColumnNumbers | None = None
        self._staging: TaskQueue | None = None
        # A task waits for its rows for as long as they take, and sends no heartbeats meanwhile.
        connection = open_link(options, beats=False)
        try:
            mode = chosen_mode(options, layout, connection)
            publisher = self._publisher(mode, task)
            self._publisher_name = publisher
            self._sender = Sender(options, connection, publisher is not None, self._came_back)
            if mode == "staged":
                self._staging = TaskQueue(
                    self._sender.channel, options, job, task.partition, layout.one_place
                )
        except BaseException:
            close_link(connection)
            raise
        staging = None if self._staging is None else self._staging.name
        # Returned messages are counted, even if they are dropped.
        envelope = Envelope(True, staging, publisher, layout.one_place is not None)
        piece = min(SPARK_WRITE_PIECE_RECORDS, options.max_in_flight)
        topics = Topics(options)
        self._encoder = Encoder(layout, self._sender.frames, envelope, piece, topics.is_exchange)

    def _publisher(self, mode: str, task: SparkTask) -> str | None:
        """Return the publisher's name, and begin to number its rows."""
        if mode == "rows":
            self._numbers = RowNumbers(self._job.batch)
            return f"{self._job.sink}-{task.partition}"
        if mode == "publishing_id":
            if task.partition != 0:
                raise WriteError(
                    "publishing ids grow within one publisher, so that one task must write all "
                    "rows: use coalesce(1)"
                )
            self._numbers = ColumnNumbers()
            return self._options.publisher_name
        return None

    def write(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch.  Raises: WriteError; RowError; Interrupted."""
        ids = None if self._numbers is None else self._numbers.of(batch)
        for piece in self._encoder.encode(batch, ids):
            self._sender.send(piece.frames, piece.count)
        self._rows += batch.num_rows

    def finish(self) -> WrittenRows:
        """Return the result once everything is confirmed.  Raises: as `write`."""
        self._sender.finish()
        staged = None if self._staging is None else self._staging.staged(self._rows)
        self._sender.close()
        return WrittenRows(self._job, self._rows, staged, self._sender.known, self._unroutable)

    def abandon(self) -> str | None:
        """Close the connection; return the staging queue, if one is left."""
        self._sender.close()
        return None if self._staging is None else self._staging.name

    def _came_back(self, message: ReturnedMessage) -> None:
        """Handle an unroutable message.  Raises: WriteError."""
        exchange = self._options.dead_letter_exchange
        where = f"exchange {message.exchange!r} with routing key {message.routing_key!r}"
        if self._staging is not None:
            raise WriteError(f"the staging queue {self._staging.name!r} is gone")
        if exchange is None and self._options.unroutable == "drop":
            self._unroutable += 1
            return
        if exchange is None or message.exchange == exchange:
            raise WriteError(
                f"no queue takes what is published to {where} ({message.reply_text}); bind one, or "
                "set the option unroutable to drop or to dead-letter:<exchange>"
            )
        self._unroutable += 1
        properties = message.properties
        properties.headers = _dead_letter_headers(message, self._publisher_name)
        frames = self._sender.frames.publish(
            exchange, message.routing_key, True, properties.encode(), message.body
        )
        self._sender.send(frames, 1)


def _dead_letter_headers(message: ReturnedMessage, publisher: str | None) -> dict[str, object]:
    """Return the headers of an unroutable message for the dead-letter exchange.

    They give the message's origin as brokers do; `queue` is empty, because no queue took the
    message.
    """
    death: dict[str, object] = {
        "count": 1,
        "reason": _UNROUTABLE,
        "queue": "",
        "time": Timestamp(int(time.time())),
        "exchange": message.exchange,
        "routing-keys": [message.routing_key],
    }
    headers = dict(message.properties.headers or {})
    headers["x-death"] = [death]
    for which in ("first", "last"):
        for field in ("reason", "queue", "exchange"):
            headers[f"x-{which}-death-{field}"] = death[field]
    if publisher is not None:
        # A queue that gets both messages must not take this one's number for the publisher's next.
        headers[PUBLISHER] = f"{publisher}.unroutable"
    return headers


def chosen_mode(options: WriteOptions, layout: Layout, connection: Connection) -> str:
    """Return the way to keep rows from being written twice.  Raises: OptionError."""
    mode = options.dedup
    if layout.publishing_id:
        mode = "publishing_id"
    elif mode == "auto":
        mode = "staged" if is_leveret(connection) or options.write_id is not None else "none"
    if mode != "none" and not is_leveret(connection):
        product = connection.server_properties.get("product", "this broker")
        needed = {
            "staged": "staged batches" if options.write_id is None else "the option writeId",
            "rows": "dedup=rows",
            "publishing_id": "the column 'publishing_id'",
        }
        raise OptionError(
            f"{needed[mode]}: {product} does not recognise repeated messages, Leveret does; "
            "rows written here may be written twice after a failure (dedup=none)"
        )
    return mode
