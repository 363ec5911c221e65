"""Eviction, which writes waiting messages to disk early when all queues together fill the memory.

Each queue keeps a window in memory (`pages.py`).  Many queues can fill the node's memory with
windows that are not full.  So when they exceed a share of it, the windows are narrowed, and one
queue after the other writes its messages to disk, until enough memory is free again.

Invariant: eviction pauses while many bytes wait to be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.core import Core
from leveret.broker.queue.waiting import WaitingQueue
from leveret.limits import SPILL_BATCH_BYTES

if TYPE_CHECKING:
    from leveret.broker.scheduler.task import Task
    from leveret.broker.vhost.vhost import Vhost

#: The minimum window of a queue when all queues together fill the memory for waiting messages.
_QUEUE_WINDOW_BYTES_LEAST: Final = 262_144


#: The cost of a call of `evict`, which may make a chunk of a queue's messages.
_ASKED: Final = 32


@final
class Eviction:
    """Keeps the waiting messages in memory within `bytes_max`; negative: no limit."""

    def __init__(self, core: Core, vhosts: dict[str, Vhost]) -> None:
        self.core = core
        self.vhosts = vhosts
        self.bytes_max: i64 = -1
        #: The window of a queue while there is memory for it.
        self.window_bytes: i64 = -1
        #: True while messages use more memory than allowed.
        self.full = False
        #: The task that evicts messages; it may be over.
        self._evicting: Task | None = None
        #: Evicts from one queue after the other; it continues where the previous task stopped.
        self._asking: Iterator[int] | None = None
        #: The bytes in memory after evicting from all queues, which begins again when they grow.
        self._asked_at: i64 = -1

    def configure(self, window_bytes: i64, bytes_max: i64) -> None:
        """Apply the settings, at the start or later."""
        self.window_bytes = window_bytes
        self.bytes_max = bytes_max
        narrow = min(window_bytes, _QUEUE_WINDOW_BYTES_LEAST)
        self.core.memory.window_bytes = narrow if self.full else window_bytes

    def judge(self, held: i64) -> None:
        """Evict messages once `held` exceeds the limit, until it is at nine tenths of the limit."""
        if self.bytes_max < 0:
            return
        if not self.full:
            if held <= self.bytes_max:
                return
            self.full = True
            self.core.memory.window_bytes = min(self.window_bytes, _QUEUE_WINDOW_BYTES_LEAST)
        elif held <= self.bytes_max // 10 * 9:
            self.full = False
            self.core.memory.window_bytes = self.window_bytes
            self._asking = None
            self._asked_at = -1
            return
        if (self._asked_at < 0 or held > self._asked_at + _QUEUE_WINDOW_BYTES_LEAST) and (
            self._evicting is None or self._evicting.over
        ):
            self._evicting = self.core.scheduler.start(self._evict(held))

    def ask_again(self) -> None:
        """Evict from all queues again, because unacked messages may have been requeued since."""
        self._asked_at = -1

    def _evict(self, held: i64) -> Iterator[int]:
        """Have queues write their messages, until many bytes wait to be written."""
        while self.full and self.core.spill.unwritten_bytes < SPILL_BATCH_BYTES:
            if self._asking is None:
                self._asking = self._ask_all()
            cost = next(self._asking, None)
            if cost is None:
                self._asking = None
                self._asked_at = held
                return
            yield cost

    def _ask_all(self) -> Iterator[int]:
        """Evict from each queue and store of delayed messages, until it has nothing to write."""
        for vhost in list(self.vhosts.values()):
            for queue in list(vhost.queues.by_name.values()):
                if isinstance(queue, WaitingQueue) and queue.ready_bytes() > 0:
                    while not queue.deleted and queue.evict():
                        yield _ASKED
                    yield _ASKED
            for exchange in list(vhost.exchanges.by_name.values()):
                store = exchange.delayed
                if store is not None and store.memory.count() > 0:
                    while not store.deleted and store.evict():
                        yield _ASKED
                    yield _ASKED
