"""A walk over the readers of a stream that has more of them than one call may serve.

Each call serves some of them, and the next one goes on behind these.  The stream begins no other
walk meanwhile; where it is asked to, because a reader has credit again or there is more to read, it
is scheduled when the walk is over.

Invariants: a walk comes to each reader once; one that has gone meanwhile is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.core.turn import Dispatcher

if TYPE_CHECKING:
    from leveret.broker.queue.consumer import Consumer
    from leveret.broker.stream.reader import StreamReader


@final
class ReaderWalk(Dispatcher):
    """Hands out to the readers of `stream`, so many with each call."""

    def __init__(self, stream: Dispatcher, readers: dict[Consumer, StreamReader]) -> None:
        super().__init__(stream.turn)
        self._stream: Final = stream
        self._readers: Final = readers
        #: Those that it has not come to, the next one last.
        self._left: list[Consumer] = list(readers)
        self._left.reverse()
        #: True when another walk must follow.
        self.again = False
        self.over = False

    def dispatch(self, limit: i64) -> bool:
        """Look at up to `limit` readers; each with credit gets its share of `limit` messages."""
        left = self._left
        part = left[-limit:]
        del left[-limit:]
        part.reverse()
        readers = self._readers
        ready = [consumer for consumer in part if consumer in readers and consumer.ready()]
        steps: i64 = len(part) - len(ready)
        share: i64 = max(limit // max(len(ready), 1), 1)
        for consumer in ready:
            reader = readers.get(consumer)
            if reader is None:
                continue
            looked = reader.hand_out(consumer, share)
            steps += max(looked, 1)
            if looked == share:
                self.again = True
        self.turn.steps += steps
        if left:
            return True
        self.over = True
        if self.again:
            self._stream.schedule()
        return False
