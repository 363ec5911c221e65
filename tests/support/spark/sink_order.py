"""Spark's order of calls to a Python sink, replayed without a JVM.

The order is that of PySpark 4.3.0 (read in its source, and logged from an instrumented one).  The
source makes a writer in one process.  The writer is pickled and sent to tasks in other processes.
Their messages are pickled and sent to a third process, which commits, or aborts with None for each
task that did not finish.  The writer of a batch save is sent there too; that of a streaming query
is made again.  A failed commit is aborted.

Tasks run in another process (`elsewhere`), where a test may kill one, or in this process, where a
test may act between two batches of rows.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from support.spark.spark_order import make_source, pickled

#: A task's rows: batches, and functions of the test to call between them.
Rows = Sequence["pa.RecordBatch | Callable[[], object]"]


class Killed(Exception):
    """The process of a task was killed."""


def kill_this_process() -> None:
    """Kill the task's process by SIGKILL in the middle of its work, like a lost executor."""
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    """Fail, as the computation of the rows may fail."""
    raise ZeroDivisionError("as the test wants it")


def run_task(writer: bytes, partition: int, local: Mapping[str, str], rows: bytes) -> bytes:
    """Run one task as a Spark worker does; return its pickled message."""
    context = TaskContext._getOrCreate()  # noqa: SLF001  as Spark's worker does
    context._partitionId = partition  # noqa: SLF001
    context._localProperties = dict(local)  # noqa: SLF001
    try:
        message = cloudpickle.loads(writer).write(_batches(cloudpickle.loads(rows)))
    finally:
        TaskContext._setTaskContext(None)  # noqa: SLF001  the task has ended
    assert isinstance(message, WriterCommitMessage)
    done: bytes = cloudpickle.dumps(message)  # type: ignore[no-untyped-call]
    return done


def _batches(rows: Rows) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and call the functions between them."""
    for item in rows:
        if isinstance(item, pa.RecordBatch):
            yield item
        else:
            item()


class _Worker:
    """The process for tasks; a new one after a test has killed it."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        atexit.register(self.stop)

    def run(self, *payload: Any) -> bytes:
        """Run a task.  Raises: Killed; any exception of the task."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, context)
        try:
            return self._pool.submit(run_task, *payload).result()
        except BrokenProcessPool:
            self.stop()
            raise Killed from None

    def stop(self) -> None:
        """End the process."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


_WORKER = _Worker()


@dataclass
class Sink:
    """A sink as a query uses it; `schema` is the Spark schema of the rows."""

    options: Mapping[str, str]
    schema: StructType
    elsewhere: bool = False
    overwrite: bool = False
    #: The messages of the last attempt, as passed to commit or abort.
    messages: list[WriterCommitMessage | None] = field(default_factory=list)

    def save(self, partitions: Sequence[Rows], local: Mapping[str, str] | None = None) -> None:
        """Save a table.  Raises: the exception of a task or the commit, after the abort."""
        made = make_source(self.options).writer(self.schema, self.overwrite)
        self._attempt(made, partitions, local or {})
        committer = pickled(made)
        self._settle(committer.commit, committer.abort)

    def batch(
        self,
        number: int,
        partitions: Sequence[Rows],
        *,
        query: str,
        crash: str = "",
        local: Mapping[str, str] | None = None,
    ) -> None:
        """Write a micro-batch; with `crash` the driver is killed before the commit or after it.

        Raises: the exception of a task or the commit, after the abort.
        """
        made = self.committer()
        told = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(number)}
        self._attempt(made, partitions, told | dict(local or {}), number)
        if crash == "before commit":
            return
        committer = self.committer()
        self._settle(
            lambda messages: committer.commit(messages, number),
            lambda messages: committer.abort(messages, number),
        )

    def committer(self) -> Any:
        """Return a streaming query's writer, as each process makes its own."""
        # Spark names the arguments.
        return make_source(self.options).streamWriter(schema=self.schema, overwrite=self.overwrite)

    def _attempt(
        self,
        writer: Any,
        partitions: Sequence[Rows],
        local: Mapping[str, str],
        batch: int | None = None,
    ) -> None:
        """Run all tasks; abort if one fails."""
        run = _WORKER.run if self.elsewhere else run_task
        self.messages = [None] * len(partitions)
        failure: BaseException | None = None
        for index, rows in enumerate(partitions):
            payload = (cloudpickle.dumps(value) for value in (writer, rows))  # type: ignore[no-untyped-call]
            writer_bytes, rows_bytes = payload
            try:
                done = run(writer_bytes, index, local, rows_bytes)
                self.messages[index] = cloudpickle.loads(done)
            except (Exception, Killed) as error:  # noqa: BLE001  raised again below
                failure = error
        if failure is not None:
            more = () if batch is None else (batch,)
            pickled(writer).abort(self.messages, *more)
            raise failure

    def _settle(self, commit: Callable[[Any], object], abort: Callable[[Any], object]) -> None:
        """Commit, and abort if that fails."""
        try:
            commit(pickled(self.messages))
        except Exception:
            abort(pickled(self.messages))
            raise


def sink_for(options: Mapping[str, str], batch: pa.RecordBatch, *, elsewhere: bool = False) -> Sink:
    """Return a sink for rows with the schema of a batch."""
    return Sink(options, from_arrow_schema(batch.schema), elsewhere)
