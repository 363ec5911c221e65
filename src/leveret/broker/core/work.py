"""The account of work: what the core has done, the tasks that it goes on with, and the rounds.

A step is one binding, target, message or definition that is looked at or changed; it takes about a
microsecond of compiled code, and never more than a few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from mypy_extensions import i64

from leveret.broker.core.counts import Counts, MessageSizes
from leveret.broker.core.memory import HeldMemory
from leveret.broker.core.rounds import Rounds
from leveret.broker.scheduler.task import Task
from leveret.limits import (
    DISPATCH_STEPS_PER_TURN,
    FREED_BYTES_PER_STEP,
    LATE_STEPS_PER_ROUND,
    LETTER_STEPS_PER_TURN,
    MESSAGES_FREED_PER_STEP,
    STEPS_PER_ROUND,
    STEPS_PER_SLICE,
    STEPS_PER_TURN,
    TIMED_STEPS_PER_TURN,
)
from leveret.message import Message, PlacedMessage
from leveret.wire.content.body_buffer import BodyBuffer

#: Objects, and bytes of messages, that are let go between two looks at the steps that are left.
_FREED_AT_ONCE: i64 = 512
_FREED_BYTES_AT_ONCE: i64 = 1 << 25


class WorkAccount(HeldMemory):
    """What the core has done since the start, and the long operations that it goes on with."""

    def __init__(self) -> None:
        super().__init__()
        #: What metrics tell, and the sizes of what was published.
        self.counts = Counts()
        self.sizes = MessageSizes()
        #: Long operations that are not at their end, the one whose turn it is first.
        self.works: deque[Task] = deque()
        #: How long one of their slices may be.  The shortest, 1, stops a generator at each yield.
        self.slice_steps: i64 = STEPS_PER_SLICE
        #: The connections that wait for their turn, the rounds that have begun since the start, and
        #: the step at which the one at hand is over.
        self.rounds = Rounds()
        self.round_number: i64 = 0
        self.round_end: i64 = STEPS_PER_ROUND
        #: The step until which others may still begin, each with a small slice, when it is over.
        self.late_end: i64 = STEPS_PER_ROUND
        #: Steps that are left in this round for deliveries, dead letters and what deadlines bring.
        self.dispatch_steps: i64 = DISPATCH_STEPS_PER_TURN
        self.letter_steps: i64 = LETTER_STEPS_PER_TURN
        self.timed_steps: i64 = TIMED_STEPS_PER_TURN
        #: The step at which the turn has done its part: what comes later in it does little.
        self.turn_end: i64 = STEPS_PER_TURN
        #: What nobody uses any more, and whether a task lets go of it.
        self._unused_lists: list[list[Any]] = []
        self._unused_tables: list[dict[Any, Any]] = []
        self._frees = False

    def count_large(self, size: i64) -> None:
        """Count what it takes to let go of a large message."""
        self.steps += size // FREED_BYTES_PER_STEP

    def free(self, items: list[Any]) -> None:
        """Let go of the objects in a list that nobody uses any more: of many, in slices."""
        count: i64 = len(items)
        if count <= _FREED_AT_ONCE and self._freed_at_once(items) == count:
            items.clear()
        else:
            self._unused_lists.append(items)
            self._begin_freeing()

    def _freed_at_once(self, items: list[Any]) -> i64:
        """Return how many objects at the end of a list are let go at once, and count that work.

        Where these are messages, or placed ones, they are fewer the larger they are.
        """
        most = min(i64(len(items)), _FREED_AT_ONCE)
        count: i64 = 0
        size: i64 = 0
        while count < most and size < _FREED_BYTES_AT_ONCE:
            count += 1
            size += _body_bytes(items[len(items) - count])
        self.steps += count // MESSAGES_FREED_PER_STEP + size // FREED_BYTES_PER_STEP
        return count

    def _empty_some(self, table: dict[Any, Any]) -> None:
        """Let go of some objects of a dict, fewer where these are large messages."""
        count: i64 = 0
        size: i64 = 0
        while table and count < _FREED_AT_ONCE and size < _FREED_BYTES_AT_ONCE:
            count += 1
            size += _body_bytes(table.popitem()[1])
        self.steps += count // MESSAGES_FREED_PER_STEP + size // FREED_BYTES_PER_STEP

    def free_later(self, items: list[Any]) -> None:
        """Let go of the objects in a list, which is one of very many, in slices."""
        if items:
            self._unused_lists.append(items)
            self._begin_freeing()

    def free_table_later(self, table: dict[Any, Any]) -> None:
        """Let go of the objects in a dict, which is one of very many, in slices."""
        if table:
            self._unused_tables.append(table)
            self._begin_freeing()

    def free_table(self, table: dict[Any, Any]) -> None:
        """Let go of the objects in a dict that nobody uses any more: of many, in slices."""
        if len(table) <= _FREED_AT_ONCE:
            self._empty_some(table)
        if table:
            self._unused_tables.append(table)
            self._begin_freeing()

    def _begin_freeing(self) -> None:
        if not self._frees:
            self._frees = True
            self.works.append(Task(self, self._free_unused()))

    def _free_unused(self) -> Iterator[int]:
        """Let go of what is in memory for nobody: a million messages take a fifth of a second."""
        while self._unused_lists or self._unused_tables:
            if self._unused_lists:
                items = self._unused_lists[-1]
                left: i64 = i64(len(items)) - self._freed_at_once(items)
                if left > 0:
                    del items[left:]
                else:
                    self._unused_lists.pop()
            else:
                table = self._unused_tables[-1]
                self._empty_some(table)
                if not table:
                    self._unused_tables.pop()
            yield 1
        self._frees = False

    def begin_round(self) -> None:
        """Begin a round: give turns to connections that wait for theirs, as many as it has.

        What the input of one brought for consumers is delivered before the next one has its turn,
        while the messages are still in the processor's caches.  The steps of that are no part of a
        user's share, nor of those that the round has for turns.
        """
        self.round_number += 1
        end = self.steps + STEPS_PER_ROUND
        last = end
        self.round_end = end
        # Who takes a turn has not come late.
        self.late_end = 0
        self.dispatch_steps = DISPATCH_STEPS_PER_TURN
        rounds = self.rounds
        while rounds.any() and self.steps < last:
            share_end = self.steps + STEPS_PER_SLICE
            left = rounds.begin_user()
            while left > 0 and self.steps < min(share_end, last):
                left -= 1
                rounds.next().take_turn()
                # Whoever had nothing more to do must cost something too.
                self.steps += 1
                before = self.steps
                self.deliver_early()
                delivered = self.steps - before
                share_end += delivered
                last += delivered
                self.round_end = last
            rounds.end_user()
        # They are a part of the round to those who come later in it.
        self.round_end = end

    def deliver_early(self) -> None:
        """Deliver from the queues that were scheduled, as far as the round has steps for it."""
        raise RuntimeError("a turn knows what is scheduled")

    def end_round(self) -> None:
        """Leave some steps to the connections whose input is found when all others had their turn.

        They are few, and each may take few: so a small request need not wait for another round.
        """
        self.late_end = max(self.steps, self.round_end) + LATE_STEPS_PER_ROUND
        self.dispatch_steps = max(self.dispatch_steps, LATE_STEPS_PER_ROUND)

    def is_round_long(self) -> bool:
        """Return whether so much was done in the round that another one must begin soon.

        What is left of it suffices for a slice; to begin one after each smaller batch would cost a
        busy connection several per cent.
        """
        return self.steps > self.round_end - STEPS_PER_SLICE

    def begin(self, task: Task) -> None:
        """Do the first slice of a long operation, and the others in later turns.

        The shell comes back for them, because `Turn.settle` follows every call into the core.
        """
        if task.step(self.slice_steps):
            self._go_on_later(task)
        else:
            task.ended()

    def _go_on_later(self, task: Task) -> None:
        """Continue a long operation in later turns; one that waits for a sync comes back itself."""
        if not task.parked:
            self.works.append(task)

    def continue_works(self, steps: i64) -> None:
        """Do a slice of long operations, each in its turn, until these take `steps` steps."""
        last = self.steps + steps
        left: i64 = len(self.works)
        while left > 0 and self.steps < last:
            left -= 1
            task = self.works.popleft()
            if task.step(self.slice_steps):
                self._go_on_later(task)
            else:
                task.ended()


def _body_bytes(item: Any) -> i64:
    """Return the bytes of the body that is let go with an object, if it has one."""
    if isinstance(item, Message):
        return len(item.body)
    if isinstance(item, PlacedMessage):
        return len(item.message.body)
    if isinstance(item, BodyBuffer):
        return item.taken()
    return 0
