"""The sinks as Spark sees them: a batch save and a streaming write, on Arrow batches.

Spark makes a writer in a separate process, sends it pickled to the tasks, and lets another process
commit or abort; a writer keeps nothing but its arguments, and the tasks' results travel in their
commit messages (measured with 4.3.0).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from leveret.names import SAVE_CHARACTERS, SAVE_PREFIX
from leveret.spark.entries import entries
from leveret.spark.options.read import OptionError
from leveret.spark.versions import DataSourceStreamArrowWriter
from leveret.spark.write.options import WriteOptions
from leveret.spark.write.result import WriteResult, add_result
from leveret.spark.write.schema import Layout, layout_of
from leveret.spark.write.staging import Job, commit, discard
from leveret.spark.write.task import SparkTask, TaskWriter, WrittenRows, current_task

log = logging.getLogger("leveret.spark")

#: The messages that Spark passes: nothing for a task that did not finish.
Messages = Sequence[WriterCommitMessage | None]


@entries
class BatchWriter(DataSourceArrowWriter):
    """Saves a table: all of it or nothing, if the broker supports that."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        _refuse_overwrite(overwrite)
        self._options = options.for_batch()
        self._layout = layout_of(schema, options)
        sink = options.write_id or SAVE_PREFIX + secrets.token_hex(SAVE_CHARACTERS // 2)
        self._job = Job(sink, options.write_batch, options.place)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write the rows of one task.  Raises: WriteError; RowError; Interrupted; OptionError."""
        return write_rows(self._options, self._layout, self._job, current_task(), iterator)

    def commit(self, messages: Messages) -> None:
        """Publish the staged messages.  Raises: WriteError; Interrupted."""
        commit_written(self._options, messages)

    def abort(self, messages: Messages) -> None:
        """Delete the known staging queues."""
        abort_written(self._options, messages)


@entries
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, each once if the broker supports that."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        _refuse_overwrite(overwrite)
        self._options = options.for_stream()
        self._layout = layout_of(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Write the rows of one task.  Raises: WriteError; RowError; Interrupted; OptionError."""
        task = current_task()
        return write_rows(
            self._options, self._layout, task.job(self._options.place), task, iterator
        )

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Publish the staged messages.  Raises: WriteError; Interrupted."""
        commit_written(self._options, messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Delete the known staging queues."""
        abort_written(self._options, messages)


def _refuse_overwrite(overwrite: bool) -> None:
    """Check that rows are added.  Raises: OptionError."""
    if overwrite:
        raise OptionError(
            "a broker's messages cannot be overwritten: use mode('append'), or "
            "outputMode('append'); for a query in complete mode, save each batch from foreachBatch"
        )


def write_rows(
    options: WriteOptions,
    layout: Layout,
    job: Job,
    task: SparkTask,
    batches: Iterator[pa.RecordBatch],
) -> WrittenRows:
    """Write the rows of one task; without rows the broker is not contacted.

    Raises: WriteError; RowError; Interrupted; OptionError; the broker's errors.
    """
    writer: TaskWriter | None = None
    try:
        for batch in batches:
            if batch.num_rows > 0:
                if writer is None:
                    writer = TaskWriter(options, layout, job, task)
                writer.write(batch)
        return WrittenRows(job, 0, None) if writer is None else writer.finish()
    except BaseException:
        if writer is not None and (queue := writer.abandon()) is not None:
            discard(options, [queue])
        raise


def commit_written(options: WriteOptions, messages: Messages) -> WriteResult | None:
    """Commit the tasks' staging queues; return the result, or None if no task had rows.

    Raises: WriteError; Interrupted.
    """
    written = [message for message in messages if isinstance(message, WrittenRows) and message.rows]
    if not written:
        log.info("no rows are written to %s", options.title)
        return None
    job = written[0].job
    staged = [message.staged for message in written if message.staged is not None]
    rows = sum(message.rows for message in written)
    dropped = sum(message.known for message in written)
    if staged and commit(options, job, staged):
        dropped = rows
    unroutable = sum(message.unroutable for message in written)
    result = WriteResult(job.sink, job.destination, job.batch, rows, dropped, unroutable)
    if dropped:
        log.warning("%s: %d of %d rows were written before and dropped", job.title, dropped, rows)
    if unroutable:
        log.warning("%s: no queue took %d of %d rows", job.title, unroutable, rows)
    log.info("%d rows of %d tasks are written to %s", rows, len(messages), options.title)
    if options.result_file is not None:
        try:
            add_result(options.result_file, result)
        except OSError as error:
            # The rows are written: an error here would make Spark write the batch again.
            log.warning("the result of %s is not kept: %s", job.title, error)
    return result


def abort_written(options: WriteOptions, messages: Messages) -> None:
    """Delete the tasks' staging queues.

    Spark also aborts after a failed commit, which the broker may have decided nevertheless: it then
    keeps these queues.
    """
    written = [message for message in messages if isinstance(message, WrittenRows)]
    discard(options, [m.staged.queue for m in written if m.staged is not None])
