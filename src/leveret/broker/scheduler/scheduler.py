"""Whose turn it is, and for how long.

A round is what the broker does between two looks at its sockets.  In a round these take turns, each
with the share that `costs` gives it: connections that have input, deliveries, tasks, deadlines, and
messages to dead-letter.  What a share does not suffice for continues in the next round, so that no
request keeps others waiting, however much it asks for.

Time is not measured.  Every part of the core counts what it does in `spent`, in a unit that is the
same on every machine (`costs`), and only this package compares it with anything.

The scheduler does not call itself: the shell calls `Core.settle` after each batch of input, and
again while there is more to do.

Invariants: whoever waits is listed once; what was added first has its turn first.
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
    LATE_SLICES,
    ROUND,
    SHARE_MIN,
    SHARE_OF_DEAD_LETTERS,
    SHARE_OF_DEADLINES,
    SHARE_OF_DELIVERIES,
    SHARE_OF_INPUT,
    SHARE_OF_TASKS,
    SHARE_OF_TRANSACTION_DEAD_LETTERS,
    SLICE,
)
from leveret.broker.scheduler.letters import WaitingLetters
from leveret.broker.scheduler.memory import Memory
from leveret.broker.scheduler.rounds import Rounds
from leveret.broker.scheduler.syncs import Parked, Syncs
from leveret.broker.scheduler.task import Task, after
from leveret.broker.scheduler.timers import Timers
from leveret.clock import NO_DEADLINE
from leveret.limits import SLICE_MESSAGES, SPILL_BYTES_MAX, UNSYNCED_BYTES_MAX

if TYPE_CHECKING:
    from leveret.broker.scheduler.effects import DeadMessage
    from leveret.broker.scheduler.link import Link
    from leveret.store.journal.journal import Journal
    from leveret.store.segments.spill import Spill


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher:
    """Something that delivers messages to consumers: a queue or a stream."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler: Final = scheduler
        self.scheduled = False

    def schedule(self) -> None:
        """Have `dispatch` called at the end of the batch of input."""
        if not self.scheduled:
            self.scheduled = True
            self.scheduler.dispatchers.append(self)

    def hand_out(self) -> None:
        """Deliver at once what the requests before this one allow, a slice at most.

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
    """What waits for its turn, and what has been spent."""

    def __init__(self, journal: Journal, spill: Spill) -> None:
        self._journal = journal
        self._spill = spill
        #: What the core has done since the start (`costs`).
        self.spent: i64 = 0
        #: How many changes of the state that clients share began, published messages apart, which
        #: their connections count.  A change is counted before it begins: after an exception that
        #: nobody expected, the count says whether anything may be half done.
        self.changes: i64 = 0
        #: The memory of messages, whose release costs something too.
        self.memory: Final = Memory(self)
        #: What waits for the journal, and consumers whose queue was deleted.
        self.syncs: Final = Syncs(self, journal)
        self.cancels: Final = Cancels(self)
        #: Long operations that are not at their end, the one whose turn it is first.
        self.tasks: deque[Task] = deque()
        #: How long one of their slices may be.  The shortest, 1, stops a generator at each yield.
        self.slice_cost: i64 = SLICE
        #: The connections that wait for their turn, the rounds that have begun since the start, and
        #: what is spent when the one at hand is over.
        self.rounds: Final = Rounds()
        self.round_number: i64 = 0
        self.round_end: i64 = SHARE_OF_INPUT
        #: Until then others may still begin, each with a small slice, when it is over.
        self.late_end: i64 = SHARE_OF_INPUT
        #: Connections that the shell must look at after the batch: they have output, or are over.
        self.woken: list[Link] = []
        #: Queues that have something to deliver, and those that have more than a slice.
        self.dispatchers: list[Dispatcher] = []
        self.continuing: list[Dispatcher] = []
        #: Deadlines, in the time of `Core.now_ms`.
        self.timers: Final = Timers()
        #: Messages to be dead-lettered when the batch's deliveries are done.
        self.letters: Final = WaitingLetters()
        #: The last one that went to so many queues that the others had to wait.
        self._spreading: Task | None = None
        #: What is left in this round for deliveries, dead letters and what deadlines bring.
        self._left_for_deliveries: i64 = SHARE_OF_DELIVERIES
        self._left_for_letters: i64 = SHARE_OF_DEAD_LETTERS
        self._left_for_deadlines: i64 = SHARE_OF_DEADLINES
        #: What is spent when the round has done its part: what comes later in it does little.
        self.full_at: i64 = ROUND
        #: True when something is left for the next round.
        self.resume = False

    def attach(self, journal: Journal, spill: Spill) -> None:
        """Go on with the journal and the files of a data directory that was recovered."""
        self._journal = journal
        self._spill = spill
        self.syncs.journal = journal

    def is_writing_much(self) -> bool:
        """Return whether so much waits to be written that the broker must not add to it."""
        return (
            self._spill.unwritten_bytes > SPILL_BYTES_MAX
            or self._journal.unsynced_bytes > UNSYNCED_BYTES_MAX
        )

    # -- the round ---------------------------------------------------------------------------------

    def settle(self, now_ms: i64, continues: bool) -> None:
        """End a batch of input: deliver from the queues that it has scheduled, a slice of each.

        Once in a round, where it `continues`, all goes on that took longer than its slice, and the
        shares of deliveries, deadlines and dead letters are given anew.  The other batches of the
        round have what is left of them: so many small ones take no longer than one.
        """
        if continues:
            self.full_at = self.spent + ROUND
            self._begin_round()
            if self.syncs.are_late():
                self.syncs.call(SLICE)
        self.cancels.notify()
        if continues:
            self._left_for_deliveries = max(self._left_for_deliveries, 2 * SHARE_MIN)
        self._deliver(continues)
        if continues:
            if self.tasks:
                self.continue_tasks(self._share(SHARE_OF_TASKS, SLICE))
            self._left_for_deadlines = self._share(SHARE_OF_DEADLINES, SHARE_MIN)
        if self._left_for_deadlines > 0:
            # Added only now: what is called counts its own.
            fired = self.timers.fire(now_ms, DEADLINES_CALLED_PER_ROUND)
            self.spent += fired
            self._left_for_deadlines -= fired
        if continues:
            self._left_for_letters = self._share(SHARE_OF_DEAD_LETTERS, SHARE_MIN)
        if self.letters.any():
            self.dead_letter(self._left_for_letters)
        if continues:
            self._end_round()

    def find_more(self, now_ms: i64) -> None:
        """Note whether another round must begin at once.

        While much is being written, the end of a write resumes dead letters and deadlines.
        """
        waits = self.letters.any() or self.due(now_ms)
        self.resume = self.has_more() or (waits and not self.is_writing_much())

    def _begin_round(self) -> None:
        """Begin a round: give turns to connections that wait for theirs, as many as it has.

        What the input of one brought for consumers is delivered before the next one has its turn,
        while the messages are still in the processor's caches.  That is no part of a user's share,
        nor of what the round has for turns.
        """
        self.round_number += 1
        end = self.spent + SHARE_OF_INPUT
        last = end
        self.round_end = end
        # Who takes a turn has not come late.
        self.late_end = 0
        self._left_for_deliveries = SHARE_OF_DELIVERIES
        rounds = self.rounds
        while rounds.any() and self.spent < last:
            slice_end = self.spent + SLICE
            left = rounds.begin_user()
            while left > 0 and self.spent < min(slice_end, last):
                left -= 1
                rounds.next().take_turn()
                # Whoever had nothing more to do must cost something too.
                self.spent += 1
                before = self.spent
                if self.dispatchers and self._left_for_deliveries > 0:
                    self._deliver(False)
                delivered = self.spent - before
                slice_end += delivered
                last += delivered
                self.round_end = last
            rounds.end_user()
        # They are a part of the round to those who come later in it.
        self.round_end = end

    def _end_round(self) -> None:
        """Leave some to the connections whose input is found when all others had their turn.

        They are few, and each may take little: so a small request need not wait for another round.
        """
        self.late_end = max(self.spent, self.round_end) + LATE_SLICES
        self._left_for_deliveries = max(self._left_for_deliveries, LATE_SLICES)

    def slice_end(self) -> i64:
        """Return what is spent at the end of a slice that begins now."""
        return self.spent + SLICE

    def is_past(self, end: i64) -> bool:
        """Return whether a slice is over that was to end at `end`."""
        return self.spent >= end

    def _share(self, most: i64, least: i64) -> i64:
        """Return how much of `most` is left to what comes now, and `least` in any case.

        So a round in which connections, queues and tasks all have much to do takes little longer
        than one in which any of them has.
        """
        return min(most, max(self.full_at - self.spent, least))

    def has_more(self) -> bool:
        """Return whether the next round has something to do, deadlines apart."""
        return (
            len(self.dispatchers) > 0
            or len(self.continuing) > 0
            or len(self.tasks) > 0
            or self.syncs.are_late()
            or self.rounds.any()
        )

    def must_go_on(self) -> bool:
        """Return whether another round must begin soon, whether input comes or not.

        What is left of a long round suffices for a slice; to begin one after each smaller batch
        would cost a busy connection several per cent.
        """
        return (
            self.resume
            or self.has_more()
            or len(self.woken) > 0
            or self.spent > self.round_end - SLICE
        )

    def take_woken(self, limit: i64) -> list[Link]:
        """Return the connections that the shell must look at, up to `limit`, and take them out."""
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

    def _deliver(self, continues: bool) -> None:
        """Deliver from the queues that were scheduled, then from those that continue.

        Queues that the share of one round does not suffice for come first in the next.  Those that
        continue have a least share of each round, whatever was scheduled in it.
        """
        last = self.spent + self._left_for_deliveries
        continuing: list[Dispatcher] | None = None
        if continues and self.continuing:
            continuing = self.continuing
            self.continuing = []
        listed = self.dispatchers
        if listed:
            self.dispatchers = []
            asked = self._deliver_from(listed, last)
            if asked < len(listed):
                self.dispatchers = listed[asked:] + self.dispatchers
        if continuing is not None:
            last = max(last, self.spent + SHARE_MIN)
            asked = self._deliver_from(continuing, last)
            if asked < len(continuing):
                self.continuing = continuing[asked:] + self.continuing
        self._left_for_deliveries = last - self.spent

    def _deliver_from(self, listed: list[Dispatcher], last: i64) -> i64:
        """Deliver a slice of each until `last` is spent; return how many were asked.

        Many queues have smaller slices, so that each has its share of the round.
        """
        share: i64 = max((last - self.spent) // len(listed), DELIVERIES_OF_ONE_MIN)
        limit: i64 = min(share, SLICE_MESSAGES)
        asked: i64 = 0
        for dispatcher in listed:
            if self.spent >= last:
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

        The shell comes back for them, because `Core.settle` follows every call into the core.
        """
        if task.step(self.slice_cost):
            self._continue_later(task)
        else:
            task.ended()

    def continue_tasks(self, cost: i64) -> None:
        """Do a slice of each task in its turn, until these have spent `cost`."""
        last = self.spent + cost
        left: i64 = len(self.tasks)
        while left > 0 and self.spent < last:
            left -= 1
            task = self.tasks.popleft()
            if task.step(self.slice_cost):
                self._continue_later(task)
            else:
                task.ended()

    def _continue_later(self, task: Task) -> None:
        """Continue a task in later rounds; one that waits for a sync comes back by itself."""
        if not task.parked:
            self.tasks.append(task)

    def park(self, task: Task) -> None:
        """Continue a task once the group that its reply waits for is synced."""
        self.syncs.wait(Parked(self, task), task.group)

    def wake(self, task: Task) -> None:
        """Continue a task in the next round, if it waits for a sync."""
        if task.parked:
            task.parked = False
            self.tasks.append(task)

    def end_tasks(self) -> None:
        """Do all that is left of long operations: the broker stops in order."""
        while self.tasks:
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
        """Dead-letter messages in their order, for about `cost`, as far as the round has it.

        They may push others out of full queues, which are dead-lettered after them, and so on.
        """
        begun = self.spent
        last = begun + min(cost, self._left_for_letters)
        memory = self.memory
        most_bytes = memory.held_bytes + DEAD_LETTER_BYTES_PER_ROUND
        while self.spent < last and memory.held_bytes <= most_bytes and not self.is_writing_much():
            if self._spreading is not None and not self._spreading.over:
                break
            letter = self.letters.next()
            if letter is None:
                break
            self._dead_letter(letter)
        self._left_for_letters -= self.spent - begun

    def _dead_letter(self, letter: DeadMessage) -> None:
        """Dead-letter a message; what follows it waits while it goes to very many queues."""
        self.changes += 1
        rest = letter.dead_letter()
        if rest is not None:
            self._spreading = self.start(_in_turn(self._spreading, rest))

    def dead_letter_own(self, before: list[DeadMessage]) -> None:
        """Dead-letter what was added since `before` was put aside, and put that list back first.

        A transaction contains its own dead letters and no others.  Those that are too much work to
        be done at once follow it, as any do.
        """
        last = self.spent + SHARE_OF_TRANSACTION_DEAD_LETTERS
        for letter in self.letters.put_back(before):
            if self.spent < last:
                self._dead_letter(letter)
            else:
                self.letters.add(letter)


def _in_turn(task: Task | None, operation: Iterator[int]) -> Iterator[int]:
    """Do an operation after a task that is under way, if there is one."""
    yield from after(task)
    yield from operation
