"""Publisher deduplication: what a publisher sent again after a crash is taken once.

A message with the headers `x-publisher` (who sends) and `x-publishing-id` (its number, which grows)
is dropped by each queue and stream that took one of that publisher with the same number or a
higher one; its publisher is told the same as if it had been taken.  It counts where a client
publishes, and for nothing that moves on from there: dead letters and delayed messages are routed
whatever their number is.  A message without `x-publishing-id` is always taken.

It survives a crash by the messages themselves: those that the journal replays are counted again, so
that a number and its message are known or lost together; checkpoints hand the numbers over.

Invariants: a number counts only where its message was taken; a publisher that sent nothing for
longer than `expiry_ms` is forgotten, and no sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.timers import Timed
from leveret.limits import PUBLISHERS_PER_QUEUE_MAX
from leveret.wire.numbered import Numbered

if TYPE_CHECKING:
    from leveret.broker.turn import Turn

#: A full table is looked through for publishers to forget no more often than this.
_SWEEP_MS: Final = 1000


@final
@mypyc_attr(acyclic=True)
class Publisher:
    """How far one publisher has come: its highest number taken, and when it sent last (ms)."""

    __slots__ = ("number", "time_ms")

    def __init__(self, number: i64, time_ms: i64) -> None:
        self.number: i64 = number
        self.time_ms: i64 = time_ms


@final
class Publishers(Timed):
    """The publishers of one queue, by their names."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self.by_name: dict[bytes, Publisher] = {}
        self._swept_ms: i64 = 0

    def has(self, numbered: Numbered) -> bool:
        """Tell whether a message of that number, or a higher one, was taken."""
        known = self.known(numbered.publisher)
        if known is None or numbered.number > known.number:
            return False
        known.time_ms = self.turn.now_ms
        return True

    def known(self, name: bytes) -> Publisher | None:
        """Return a publisher, unless it is to be forgotten."""
        known = self.by_name.get(name)
        return None if known is None or self._is_idle(known.time_ms) else known

    def has_room(self, numbered: Numbered) -> bool:
        """Tell whether the publisher is known, or one more may be."""
        if numbered.publisher in self.by_name or len(self.by_name) < PUBLISHERS_PER_QUEUE_MAX:
            return True
        if self.turn.now_ms - self._swept_ms >= _SWEEP_MS:
            self._sweep()
        return len(self.by_name) < PUBLISHERS_PER_QUEUE_MAX

    def note(self, numbered: Numbered) -> None:
        """Count a message that was taken."""
        now_ms = self.turn.now_ms
        known = self.by_name.get(numbered.publisher)
        if known is None:
            self.by_name[numbered.publisher] = Publisher(numbered.number, now_ms)
            self._arm()
        else:
            known.number = numbered.number
            known.time_ms = now_ms

    def learn(self, name: bytes, number: i64, time_ms: i64) -> None:
        """Count what was taken before a restart; what comes later was taken later, or again."""
        expiry_ms = self.turn.publisher_expiry_ms
        known = self.by_name.get(name)
        if known is None:
            self.by_name[name] = Publisher(number, time_ms)
        elif time_ms - known.time_ms > expiry_ms:
            # The publisher had been forgotten by then.
            known.number = number
            known.time_ms = time_ms
        elif known.time_ms - time_ms <= expiry_ms:
            known.number = max(known.number, number)
            known.time_ms = max(known.time_ms, time_ms)

    def restored(self) -> None:
        """Begin to forget, once all was learned; of too many the oldest are forgotten at once."""
        self._sweep()
        if len(self.by_name) > PUBLISHERS_PER_QUEUE_MAX:
            newest = sorted(self.by_name, key=self._time_of)[-PUBLISHERS_PER_QUEUE_MAX:]
            self.by_name = {name: self.by_name[name] for name in newest}
        self._arm()

    def _time_of(self, name: bytes) -> int:
        return int(self.by_name[name].time_ms)

    def _is_idle(self, time_ms: i64) -> bool:
        return self.turn.now_ms - time_ms > self.turn.publisher_expiry_ms

    def _sweep(self) -> None:
        """Forget those that sent nothing for long."""
        self._swept_ms = self.turn.now_ms
        idle = [name for name, known in self.by_name.items() if self._is_idle(known.time_ms)]
        for name in idle:
            del self.by_name[name]

    def _arm(self) -> None:
        """Have the timer come when a publisher may have been idle for long enough."""
        if not self.by_name:
            self.turn.timers.cancel(self)
        elif self.deadline_ms < 0:
            self.turn.timers.set(self, self.turn.now_ms + self.turn.publisher_expiry_ms + 1)

    def due(self, now_ms: i64) -> None:
        """Forget whom there is to forget."""
        self._sweep()
        self._arm()

    def drop(self) -> None:
        """Forget all: the queue is deleted."""
        self.by_name.clear()
        self.turn.timers.cancel(self)
