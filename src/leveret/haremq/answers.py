"""The answers of a HareMQ connection: one for each request, in the order of the requests.

An answer waits until the journal records of its request are synced, like a confirm or a declare-ok
in AMQP.  Later answers wait behind it, so no answer of a channel follows the answer to its close,
which would break the client.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.effects import SyncWaiter
from leveret.haremq.fields import write_common, write_query
from leveret.haremq.frames import HARE_MQ
from leveret.limits import OUTPUT_BYTES_MAX
from leveret.session.client_session import ClientSession
from leveret.session.states import HALT_SYNC
from leveret.wire.buffer import BytesWriter
from leveret.wire.content.output import FrameOutput

#: The maximum number of answers of a connection that wait for a sync; then parsing pauses.
HAREMQ_ANSWERS_WAITING_MAX: Final = 16_384


@final
class _GroupAnswers:
    """Answers that wait for a journal group; `last` is the number of the last one."""

    def __init__(self, group: i64) -> None:
        self.group: i64 = group
        self.writer = BytesWriter()
        self.last: i64 = 0


@final
class Answers(SyncWaiter):
    """Writes the answers of one connection to its output."""

    def __init__(self, connection: ClientSession, output: FrameOutput) -> None:
        super().__init__()
        self._connection = connection
        self._core = connection.core
        self._output = output
        #: The protobuf package of the answers.
        self.package = HARE_MQ
        self._waiting: list[_GroupAnswers] = []
        #: The number of answers written to the output, and of all answers, including waiting ones.
        self.written: i64 = 0
        self.given: i64 = 0

    def memory(self) -> i64:
        """Return the size of the waiting answers, which wait for a few groups at most."""
        size: i64 = 0
        for waiting in self._waiting:
            size += len(waiting.writer)
        return size

    def answer(self, identity: bytes, ok: bool, group: i64) -> None:
        """Answer a request; `group` is the journal group of its records, or 0 if it has none."""
        write_common(self._place(group), self.package, identity, ok)

    def answer_query(self, identity: bytes, body: bytes) -> None:
        """Answer a query with `body`."""
        write_query(self._place(0), self.package, identity, body)

    def _place(self, group: i64) -> BytesWriter:
        """Return the writer for the next answer."""
        self.given += 1
        if group == 0 and not self._waiting:
            self.written += 1
            self._connection.wake()
            return self._output.writer
        waiting = self._waiting
        if not waiting:
            waiting.append(_GroupAnswers(group))
            self._core.syncs.wait(self, group)
        elif group > waiting[-1].group:
            waiting.append(_GroupAnswers(group))
        last = waiting[-1]
        last.last = self.given
        # Answers to queries may be long, so limit the bytes, too.
        if (
            self.given - self.written >= HAREMQ_ANSWERS_WAITING_MAX
            or len(last.writer) > OUTPUT_BYTES_MAX
        ):
            self._connection.halt(HALT_SYNC)
            self._core.syncs.wait(self._connection, waiting[0].group)
        return last.writer

    def synced(self, group: i64) -> None:
        """Write the answers that waited for the synced groups."""
        waiting = self._waiting
        done: i64 = 0
        size: i64 = len(waiting)
        while done < size and waiting[done].group <= group:
            ready = waiting[done]
            self._output.writer.write(ready.writer.getvalue())
            self.written = ready.last
            done += 1
        del waiting[:done]
        if waiting:
            self._core.syncs.wait(self, waiting[0].group)
        self._connection.wake()

    def end(self) -> None:
        """Drop the waiting answers, because the connection has ended."""
        self._waiting = []
