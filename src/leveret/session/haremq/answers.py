"""The answers of a HareMQ connection: one for each request, in the order of the requests.

An answer waits for the sync of what its request had journaled, as a confirm and the reply to a
declare of AMQP do, and those behind it wait too: so no answer of a channel comes after that of its
close, which the client would not survive.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.scheduler.effects import SyncWaiter
from leveret.limits import HAREMQ_ANSWERS_WAITING_MAX, OUTPUT_BYTES_MAX
from leveret.session.client_session import ClientSession
from leveret.session.states import HALT_SYNC
from leveret.wire.buffer import BytesWriter
from leveret.wire.content.output import FrameOutput
from leveret.wire.haremq.fields import write_common, write_query
from leveret.wire.haremq.frames import HARE_MQ


@final
class _Waiting:
    """Answers that wait for a group, and the number of the last one among all that were given."""

    def __init__(self, group: i64) -> None:
        self.group: i64 = group
        self.writer = BytesWriter()
        self.last: i64 = 0


@final
class Answers(SyncWaiter):
    """The answers of one connection, which are written to its output."""

    def __init__(self, connection: ClientSession, output: FrameOutput) -> None:
        super().__init__()
        self._connection = connection
        self._core = connection.core
        self._output = output
        #: The package of their names.
        self.package = HARE_MQ
        self._waiting: list[_Waiting] = []
        #: Counts all answers that were written, and all that were given.
        self.written: i64 = 0
        self.given: i64 = 0

    def memory(self) -> i64:
        """Return the bytes of the answers that wait: of a few groups at most."""
        size: i64 = 0
        for waiting in self._waiting:
            size += len(waiting.writer)
        return size

    def answer(self, identity: bytes, ok: bool, group: i64) -> None:
        """Answer a request that journaled into `group` (0: nothing)."""
        write_common(self._place(group), self.package, identity, ok)

    def answer_query(self, identity: bytes, body: bytes) -> None:
        """Answer a query."""
        write_query(self._place(0), self.package, identity, body)

    def _place(self, group: i64) -> BytesWriter:
        """Return where the next answer is written to."""
        self.given += 1
        if group == 0 and not self._waiting:
            self.written += 1
            self._connection.wake()
            return self._output.writer
        waiting = self._waiting
        if not waiting:
            waiting.append(_Waiting(group))
            self._core.syncs.wait(self, group)
        elif group > waiting[-1].group:
            waiting.append(_Waiting(group))
        last = waiting[-1]
        last.last = self.given
        # The answer to a query may be long, so their bytes count too.
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
        """Write none any more: the connection ended."""
        self._waiting = []
