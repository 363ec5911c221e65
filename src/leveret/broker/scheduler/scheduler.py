"""The scheduler, which decides what runs next and for how long.

A *round* is a budget with a target of some 8 ms.  It is spent on these, each up to its *share*
(`costs`): input, deliveries, tasks, deadlines, dead letters, and objects that waited for a sync.
Within a share, one connection or task has a *slice* of some 2 ms.  Unfinished work continues in a
later round, so that no request keeps others waiting, however large it is.

No clock is read.  Every part of the core adds the cost of its work to `spent`, in a unit that is
the same on every machine.  Inside the broker, only this package compares `spent` with a budget.

The scheduler does not run by itself.  The runner (`server/runner.py`) ends each batch of input with
`Broker.settle`, and begins a round when work is left over or the budget is nearly spent.  Batches
that arrive in between draw on the same budget.

Invariants: every waiting object is listed once; the lists are first in, first out, except that the
first slice of a task runs at once, as a part of the request that starts it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.scheduler.cancels import Cancels
from leveret.broker.scheduler.costs import (
    DEAD_LETTER_BYTES_PER_ROUND,
    DEADLINES_CALLED_PER_ROUND,
    DELIVERIES_OF_ONE_MIN,
    ROUND,
    SHARE_MIN,
    SHARE_OF_DEAD_LETTERS,
    SHARE_OF_DEADLINES,
    SHARE_OF_DELIVERIES,
    SHARE_OF_INPUT,
    SHARE_OF_LATE_INPUT,
    SHARE_OF_TASKS,
    SHARE_OF_TRANSACTION_DEAD_LETTERS,
    SLICE,
)
from leveret.broker.scheduler.effects import WaitingLetters
from leveret.broker.scheduler.memory import Memory
from leveret.broker.scheduler.syncs import Parked, Syncs
from leveret.broker.scheduler.task import Task, after
from leveret.broker.scheduler.timers import Timers
from leveret.broker.scheduler.turns import Turns
from leveret.clock import NO_DEADLINE
from leveret.limits import SLICE_MESSAGES, SPILL_BYTES_MAX, UNSYNCED_BYTES_MAX

if TYPE_CHECKING:
    from leveret.broker.scheduler.effects import DeadMessage
    from leveret.broker.scheduler.link import Link
    from leveret.store.journal.journal import Journal
    from leveret.store.segments.spill import Spill


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher:
    """A queue or a stream, which delivers messages to consumers."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler: Final = scheduler
        self.scheduled = False

    def schedule(self) -> None:
        """Have `dispatch` called at the end of the batch of input."""
        if not self.scheduled:
            self.scheduled = True
            self.scheduler.dispatchers.append(self)

    def hand_out(self) -> None:
        """Deliver at once the messages that earlier requests allow, at most a slice.

        So requests that arrive in one read have the same results as requests that arrive one by
        one.
        """
        if self.scheduled:
            self.dispatch(SLICE_MESSAGES)

    @abstractmethod
    def dispatch(self, limit: i64) -> bool:
        """Deliver at most `limit` messages; return whether more could be delivered at once."""


@final
class Scheduler:
    """Waiting work, and the cost spent."""

    def __init__(self, journal: Journal, spill: Spill) -> None:
        self._journal = journal
        self._spill = spill
        #: The cost of all work since the start (`costs`).
        self.spent: i64 = 0
        #: The number of changes of shared state begun, without publishes, which each connection
        #: counts.  A change is counted before it begins, so that after an unexpected exception the
        #: count shows whether a change may be incomplete.
        self.changes: i64 = 0
        #: The memory of messages; freeing it has a cost too.
        self.memory: Final = Memory(self)
        #: Objects that wait for the journal, and consumers to notify of a deleted queue.
        self.syncs: Final = Syncs(self, journal)
        self.cancels: Final = Cancels(self)
        #: Long operations in progress, the next one first.
        self.tasks: deque[Task] = deque()
        #: The slice of a task.  Only tests change it: 1 stops a generator at every yield.
        self.slice_cost: i64 = SLICE
        #: The connections that wait for a turn, and the value of `spent` beyond which no connection
        #: begins a full slice of input in this round.
        self.turns: Final = Turns()
        self.input_end: i64 = SHARE_OF_INPUT
        #: After that, a connection may still begin a `LATE_SLICE` until `spent` reaches this.
        self.late_end: i64 = SHARE_OF_INPUT
        #: Connections with output, and closed ones, which the shell must handle after the batch.
        self.woken: list[Link] = []
        #: Queues that have messages to deliver, and those that used up their limit and have more.
        self.dispatchers: list[Dispatcher] = []
        self.continuing: list[Dispatcher] = []
        #: Deadlines, in the time of `Core.now_ms`.
        self.timers: Final = Timers()
        #: Messages to dead-letter after the deliveries of the batch.
        self.letters: Final = WaitingLetters()
        #: The routing of a dead letter to very many queues; later dead letters wait for it.
        self._spreading: Task | None = None
        #: The rest of this round's shares of deliveries, dead letters and deadlines.
        self._left_for_deliveries: i64 = SHARE_OF_DELIVERIES
        self._left_for_letters: i64 = SHARE_OF_DEAD_LETTERS
        self._left_for_deadlines: i64 = SHARE_OF_DEADLINES
        #: The value of `spent` at which the round is full; later work has its minimum share.
        self.full_at: i64 = ROUND
        #: Whether another round must begin at once.
        self.resume = False

    def attach(self, journal: Journal, spill: Spill) -> None:
        """Continue with the journal and the files of a recovered data directory."""
        self._journal = journal
        self._spill = spill
        self.syncs.journal = journal

    def is_writing_much(self) -> bool:
        """Return whether so many bytes wait to be written that the broker must not add more."""
        return (
            self._spill.unwritten_bytes > SPILL_BYTES_MAX
            or self._journal.unsynced_bytes > UNSYNCED_BYTES_MAX
        )

    # -- the round ---------------------------------------------------------------------------------

    def settle(self, now_ms: i64, new_round: bool) -> None:
        """End a batch of input: deliver a slice from each queue that it has scheduled.

        With `new_round`, unfinished work continues first, and the shares are renewed.  Otherwise
        the batch draws on the rest of the shares, so that many small batches take no longer than a
        large one.
        """
        if new_round:
            self.full_at = self.spent + ROUND
            self._begin_round()
            if self.syncs.has_ready():
                self.syncs.call(SLICE)
        self.cancels.notify()
        if new_round:
            # The connections' turns may have used up the share of deliveries.
            self._left_for_deliveries = max(self._left_for_deliveries, 2 * SHARE_MIN)
        self._deliver(new_round)
        if new_round:
            if self.tasks:
                self.continue_tasks(self._share(SHARE_OF_TASKS, SLICE))
            self._left_for_deadlines = self._share(SHARE_OF_DEADLINES, SHARE_MIN)
        if self._left_for_deadlines > 0:
            before = self.spent
            fired = self.timers.fire(now_ms, DEADLINES_CALLED_PER_ROUND)
            # The called objects have added their own costs already.
            self.spent += fired
            self._left_for_deadlines -= self.spent - before
        if new_round:
            self._left_for_letters = self._share(SHARE_OF_DEAD_LETTERS, SHARE_MIN)
        if self.letters.any():
            self.dead_letter(self._left_for_letters)
        if new_round:
            # Reserve a little for connections whose input is read after the turns, so that a small
            # request need not wait for the next round.
            self.late_end = max(self.spent, self.input_end) + SHARE_OF_LATE_INPUT
            self._left_for_deliveries = max(self._left_for_deliveries, SHARE_OF_LATE_INPUT)
        # During large writes, the end of a write resumes dead letters and deadlines.
        self.resume = self.has_more() or (
            (self.letters.any() or self.due(now_ms)) and not self.is_writing_much()
        )

    def _begin_round(self) -> None:
        """Begin a round, and give waiting connections their turns, up to the share of input.

        The messages that a connection published are delivered before the next connection's turn,
        while they are still in the processor's caches.  These deliveries count neither against the
        user nor against the share of input.
        """
        end = self.spent + SHARE_OF_INPUT
        stop_at = end
        self.input_end = end
        # No late slices begin during turns.
        self.late_end = 0
        self._left_for_deliveries = SHARE_OF_DELIVERIES
        turns = self.turns
        while turns.any() and self.spent < stop_at:
            slice_end = self.spent + SLICE
            left = turns.begin_user()
            while left > 0 and self.spent < min(slice_end, stop_at):
                left -= 1
                turns.next().take_turn()
                # A connection without more work must cost something too.
                self.spent += 1
                before = self.spent
                if self.dispatchers and self._left_for_deliveries > 0:
                    self._deliver(False)
                delivered = self.spent - before
                slice_end += delivered
                stop_at += delivered
                self.input_end = stop_at
            turns.end_user()
        # For input that arrives later in the round, these deliveries do count.
        self.input_end = end

    def end_of_slice(self) -> i64:
        """Return the value of `spent` at the end of a slice that begins now."""
        return self.spent + SLICE

    def is_past(self, end: i64) -> bool:
        """Return whether a slice that ends at `end` is over."""
        return self.spent >= end

    def _share(self, most: i64, least: i64) -> i64:
        """Return the rest of the round, from `least` to `most`, as the share of the next work.

        So a round in which connections, queues and tasks all have much to do takes little longer
        than a round in which only one of them does.
        """
        return min(most, max(self.full_at - self.spent, least))

    def has_more(self) -> bool:
        """Return whether the next round has work, not counting deadlines."""
        return (
            len(self.dispatchers) > 0
            or len(self.continuing) > 0
            or len(self.tasks) > 0
            or self.syncs.has_ready()
            or self.turns.any()
        )

    def must_go_on(self) -> bool:
        """Return whether another round must begin soon, even without input.

        One is due once less than a slice is left before `input_end`.  Beginning one after every
        small batch would slow down a busy connection by several per cent.
        """
        return (
            self.resume
            or self.has_more()
            or len(self.woken) > 0
            or self.spent > self.input_end - SLICE
        )

    def take_woken(self, limit: i64) -> list[Link]:
        """Remove and return up to `limit` connections that the shell must handle."""
        woken = self.woken
        if len(woken) > limit:
            self.woken = woken[limit:]
            del woken[limit:]
        else:
            self.woken = []
        for link in woken:
            link.woken = False
        return woken

    # -- deliveries --------------------------------------------------------------------------------

    def _deliver(self, new_round: bool) -> None:
        """Deliver from the scheduled queues, then from those that have more to deliver.

        Queues that are not reached in one round come first in the next.  Queues with more to
        deliver have a minimum share of each round, whatever was scheduled in it.
        """
        stop_at = self.spent + self._left_for_deliveries
        continuing: list[Dispatcher] | None = None
        if new_round and self.continuing:
            continuing = self.continuing
            self.continuing = []
        listed = self.dispatchers
        if listed:
            self.dispatchers = []
            asked = self._deliver_from(listed, stop_at)
            if asked < len(listed):
                self.dispatchers = listed[asked:] + self.dispatchers
        if continuing is not None:
            stop_at = max(stop_at, self.spent + SHARE_MIN)
            asked = self._deliver_from(continuing, stop_at)
            if asked < len(continuing):
                self.continuing = continuing[asked:] + self.continuing
        self._left_for_deliveries = stop_at - self.spent

    def _deliver_from(self, listed: list[Dispatcher], stop_at: i64) -> i64:
        """Deliver from each queue until `stop_at` is spent; return how many queues were reached.

        With many queues each delivers less, so that all have their share of the round.
        """
        share: i64 = max((stop_at - self.spent) // len(listed), DELIVERIES_OF_ONE_MIN)
        limit: i64 = min(share, SLICE_MESSAGES)
        asked: i64 = 0
        for dispatcher in listed:
            if self.spent >= stop_at:
                break
            asked += 1
            self.spent += 1
            dispatcher.scheduled = False
            if dispatcher.dispatch(limit) and not dispatcher.scheduled:
                dispatcher.scheduled = True
                self.continuing.append(dispatcher)
        return asked

    # -- tasks -------------------------------------------------------------------------------------

    def start(self, operation: Iterator[int]) -> Task:
        """Do the first slice of a long operation (`Task`), and the others in later rounds."""
        task = Task(self, operation)
        self.begin(task)
        return task

    def start_later(self, operation: Iterator[int]) -> Task:
        """Do a long operation in later rounds."""
        task = Task(self, operation)
        self.tasks.append(task)
        return task

    def begin(self, task: Task) -> None:
        """Do the first slice of a task, and the others in later rounds.

        The runner begins those rounds, because `settle` follows every call into the core.
        """
        if task.step(self.slice_cost):
            self._continue_later(task)
        else:
            task.ended()

    def continue_tasks(self, cost: i64) -> None:
        """Do a slice of each task in turn, until they have spent `cost`."""
        stop_at = self.spent + cost
        left: i64 = len(self.tasks)
        while left > 0 and self.spent < stop_at:
            left -= 1
            task = self.tasks.popleft()
            if task.step(self.slice_cost):
                self._continue_later(task)
            else:
                task.ended()

    def _continue_later(self, task: Task) -> None:
        """Continue a task in later rounds, unless it waits for a sync, which resumes it."""
        if not task.parked:
            self.tasks.append(task)

    def park(self, task: Task) -> None:
        """Continue a task once the journal group that its reply must wait for is synced."""
        self.syncs.wait(Parked(self, task), task.group)

    def wake(self, task: Task) -> None:
        """Continue a task in the next round, if it waits for a sync."""
        if task.parked:
            task.parked = False
            self.tasks.append(task)

    def end_tasks(self) -> None:
        """Complete all tasks, because the broker is stopping.

        Once too many bytes wait to be written, the remaining tasks are abandoned, as in a crash.
        Dead letters wait for those writes, and tasks may wait for dead letters, but nothing is
        written here.
        """
        while self.tasks and not self.is_writing_much():
            self.continue_tasks(SHARE_OF_TASKS)
            if self.letters.any():
                self.dead_letter(SHARE_OF_DEAD_LETTERS)
                self._left_for_letters = SHARE_OF_DEAD_LETTERS

    # -- deadlines and dead letters ----------------------------------------------------------------

    def due(self, now_ms: i64) -> bool:
        """Return whether a deadline has passed."""
        next_ms = self.timers.next_ms()
        return next_ms != NO_DEADLINE and next_ms <= now_ms

    def dead_letter(self, cost: i64) -> None:
        """Dead-letter messages in order, up to about `cost` and the rest of the round's share.

        Dead letters may push other messages out of full queues, which are dead-lettered after them,
        and so on.
        """
        begun = self.spent
        stop_at = begun + min(cost, self._left_for_letters)
        memory = self.memory
        most_bytes = memory.held_bytes + DEAD_LETTER_BYTES_PER_ROUND
        while (
            self.spent < stop_at and memory.held_bytes <= most_bytes and not self.is_writing_much()
        ):
            if self._spreading is not None and not self._spreading.over:
                break
            letter = self.letters.next()
            if letter is None:
                break
            self._dead_letter(letter)
        self._left_for_letters -= self.spent - begun

    def _dead_letter(self, letter: DeadMessage) -> None:
        """Dead-letter a message; later ones wait while it is routed to very many queues."""
        self.changes += 1
        rest = letter.dead_letter()
        if rest is not None:
            self._spreading = self.start(_in_turn(self._spreading, rest))

    def dead_letter_own(self, before: list[DeadMessage]) -> None:
        """Dead-letter the messages added since `before` was put aside, after restoring that list.

        A transaction includes its own dead letters and no others.  Those that would take too long
        follow later, like any others.
        """
        stop_at = self.spent + SHARE_OF_TRANSACTION_DEAD_LETTERS
        for letter in self.letters.put_back(before):
            if self.spent < stop_at:
                self._dead_letter(letter)
            else:
                self.letters.add(letter)


def _in_turn(task: Task | None, operation: Iterator[int]) -> Iterator[int]:
    """Run an operation after a task in progress, if there is one."""
    yield from after(task)
    yield from operation
