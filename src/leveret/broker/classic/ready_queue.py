"""The base of the classic queue, as its expiry and its retries use it.

`classic.py` implements how messages come and go.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.backlog.priorities import PriorityReady
from leveret.broker.backlog.ready import Ready
from leveret.broker.backlog.source import Returned
from leveret.broker.classic.chunked import ChunkedQueue
from leveret.broker.core.turn import Turn


class ReadyQueue(ChunkedQueue):
    """The base of the classic queue, as its parts use it."""

    def __init__(
        self,
        turn: Turn,
        queue_id: i64,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> None:
        super().__init__(turn, queue_id, name, durable, exclusive, auto_delete, arguments)
        level = self.settings.priority_max
        self.ready: Ready = PriorityReady(level) if level > 0 else Ready()
        #: Persistent messages that are handed out and not acked, by their sequences.
        self.out: dict[i64, Returned] = {}

    def discard(self, sequence: i64, reason: str) -> bool:
        """Dead-letter or drop a waiting message; return False if it does not wait."""
        raise RuntimeError("a queue with waiting messages discards them")

    def put_back(self, item: Returned) -> None:
        """Put a returned message back into its old place."""
        raise RuntimeError("a queue with waiting messages takes them back")
