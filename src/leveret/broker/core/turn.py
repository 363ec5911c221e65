"""One turn of the broker: the effects that the core has gathered while it handled a batch of input.

The core does no I/O.  While it works it notes which queues have something to hand out, which
connections have output (*wake*), what it waits to be synced for, which chunks it must read, and
whether a long loop has to go on (*resume*).  The shell looks at the notes once per batch, never
once per message.

Invariants: an object is listed at most once in each list; nothing here calls into a shell.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.accounts import Accounts, ConnectionAccount
from leveret.broker.core.cancels import Cancellable, Cancels
from leveret.broker.core.effects import (
    ChunkReader,
    ChunkWanted,
    DamagedChunk,
    DeadMessage,
    SyncWaiter,
)
from leveret.broker.core.events import MessageEvents
from leveret.broker.core.letters import WaitingLetters
from leveret.broker.core.ownership import Owner
from leveret.broker.core.quotas import Quotas
from leveret.broker.core.stream_cache import StreamCache
from leveret.broker.core.timers import Timers
from leveret.broker.core.unacked_share import UnackedRoom
from leveret.broker.core.work import WorkAccount
from leveret.broker.scheduler.task import Task, after
from leveret.broker.values.letters import LettersDropped
from leveret.clock import NO_DEADLINE
from leveret.limits import (
    CHUNK_BYTES_MAX,
    DISPATCH_SHARE_MIN,
    LATE_STEPS_PER_SLICE,
    LETTER_BYTES_PER_TURN,
    LETTER_STEPS_PER_TURN,
    PUBLISHER_EXPIRY_MS,
    SLICE_MESSAGES,
    SPILL_BYTES_MAX,
    STEPS_PER_SLICE,
    STEPS_PER_TURN,
    TIMED_STEPS_PER_TURN,
    TIMERS_PER_TURN,
    TURN_SHARE_MIN,
    TX_LETTER_STEPS_MAX,
    UNSYNCED_BYTES_MAX,
    WORK_STEPS_PER_TURN,
)
from leveret.store.damage import DamageCounts
from leveret.store.io_counts import IoCounts
from leveret.store.segments.segments import SegmentNumbers
from leveret.store.segments.spill import Spill, SpillBatch

if TYPE_CHECKING:
    from leveret.store.journal.journal import Journal


#: No sequence has these bits all zero: they begin at 1.
NO_EVENTS: Final = 0x7FFF_FFFF_FFFF_FFFF


@mypyc_attr(allow_interpreted_subclasses=True)
class Link(SyncWaiter):
    """One client connection as the broker sees it: the owner of exclusive queues, with output."""

    def __init__(self, turn: Turn, name: str) -> None:
        super().__init__()
        self.turn = turn
        self.name = name
        #: The user of the connection, who shares the turns of all of his; empty before
        #: `connection.open`.
        self.user = ""
        #: The vhost of the connection; empty before `connection.open`.
        self.vhost_name = ""
        #: The user as the owner of what he makes in the vhost; None before `connection.open`.
        self.as_owner: Owner | None = None
        #: The memory that it holds beside messages.
        self.account: Final = ConnectionAccount(turn.accounts)
        #: The messages that it was sent and has not acked.
        self.unacked: Final = UnackedRoom(turn.unacked)
        #: False while the peer does not read: its consumers get nothing until it reads again.
        self.writable = True
        self.woken = False
        #: The step (`Turn.steps`) at which its slice of the round ends.
        self.slice_end: i64 = 0

    def wake(self) -> None:
        """Note that the shell must look at this connection after the batch."""
        if not self.woken:
            self.woken = True
            self.turn.woken.append(self)

    # -- its share of the round --------------------------------------------------------------------

    def begin_slice(self) -> None:
        """Begin to handle input: for a slice, or not before its turn where the round is over.

        Some have a small slice even then (`WorkAccount.end_round`).
        """
        turn = self.turn
        steps = turn.steps
        self.slice_end = steps + STEPS_PER_SLICE
        if steps >= turn.round_end:
            if steps < turn.late_end:
                self.slice_end = steps + LATE_STEPS_PER_SLICE
            else:
                self.yield_turn()

    def spend(self, steps: i64) -> None:
        """Count what its input took; handle no more of it than the slice allows."""
        turn = self.turn
        turn.steps += steps
        if turn.steps >= self.slice_end:
            self.yield_turn()

    def check_slice(self) -> None:
        """End the slice where what was counted elsewhere has used it up."""
        if self.turn.steps >= self.slice_end:
            self.yield_turn()

    @abstractmethod
    def yield_turn(self) -> None:
        """Handle no more input until it is this connection's turn again (`Rounds`)."""

    @abstractmethod
    def take_turn(self) -> None:
        """Handle a slice of the input: it is this connection's turn."""

    # -- what it hears of --------------------------------------------------------------------------

    @abstractmethod
    def alarm(self, blocked: bool, reason: str) -> None:
        """Take note that publishers are blocked, or are not any more; `reason` says why."""

    @abstractmethod
    def channel_count(self) -> i64:
        """Return how many channels are open."""

    @abstractmethod
    def access_changed(self) -> None:
        """Take note that the permissions of the user have changed."""

    @abstractmethod
    def check_consumers(self) -> Iterator[int]:
        """End the consumers of queues that the user may no longer read (behaviour 74)."""

    @abstractmethod
    def force(self, text: str) -> None:
        """Close the connection for the operator or the broker (320)."""

    def delivered(self) -> None:
        """Take note that deliveries may have been written, where acks have a time limit."""

    def superseded(self) -> None:
        """Take note that its client has made another connection: this one is lost."""

    def lose_exclusive(self, queue_id: i64) -> None:
        """Take note that an exclusive queue of the connection is deleted."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher:
    """Something that delivers messages to consumers: a queue or a stream."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.scheduled = False

    def schedule(self) -> None:
        """Have `dispatch` called at the end of the turn."""
        if not self.scheduled:
            self.scheduled = True
            self.turn.dispatchers.append(self)

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
class Resumption(SyncWaiter):
    """Schedules a dispatcher again once a group of the journal is synced."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self.dispatcher: Final = dispatcher

    def synced(self, group: i64) -> None:
        """Have it dispatch."""
        self.dispatcher.schedule()


@final
class Parked(SyncWaiter):
    """Continues a task once a group of the journal is synced."""

    def __init__(self, turn: Turn, task: Task) -> None:
        super().__init__()
        self._turn: Final = turn
        self._task: Final = task

    def synced(self, group: i64) -> None:
        """Have it continue in the next round."""
        self._turn.wake(self._task)


@final
class SyncWaiters:
    """All who wait for groups of the journal; very many are called a slice at a time.

    Invariant: each that waits is in one of the lists, once.
    """

    def __init__(self) -> None:
        self._waiting: list[SyncWaiter] = []
        #: The last group that is synced, and those who are still to be called for it.
        self._group: i64 = 0
        self._late: list[SyncWaiter] = []

    def add(self, waiter: SyncWaiter, group: i64) -> None:
        """Call `waiter` when `group` is synced."""
        if waiter.waits_for == 0:
            waiter.waits_for = group
            self._waiting.append(waiter)

    def synced(self, group: i64) -> None:
        """Note that every group up to `group` is synced; `call` is to follow."""
        self._group = group
        if self._late:
            self._late += self._waiting
            self._waiting = []
        else:
            self._late, self._waiting = self._waiting, self._late

    def are_late(self) -> bool:
        """Return whether some are still to be called."""
        return len(self._late) > 0

    def call(self, account: WorkAccount, steps: i64) -> None:
        """Call those whose group is synced, for about so many steps, which are counted."""
        group = self._group
        late = self._late
        last = account.steps + steps
        place: i64 = 0
        try:
            while place < len(late) and account.steps < last:
                waiter = late[place]
                place += 1
                account.steps += 1
                if waiter.waits_for <= group:
                    waiter.waits_for = 0
                    waiter.synced(group)
                else:
                    self._waiting.append(waiter)
        finally:
            # Nobody is called twice, whatever happened to who was called.
            if place == len(late):
                late.clear()
            else:
                del late[:place]


class Turn(WorkAccount):
    """The effects that one call into the core has gathered, and what all of the core shares."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        #: What takes memory and is no message.
        self.accounts = Accounts()
        #: What the journal has cost the disk since the start.
        self.io = IoCounts()
        #: Wall time in ms, set by the shell once per batch; it never goes back or jumps.
        self.now_ms: i64 = 0
        #: What is to deliver, and what has more to deliver than a slice.
        self.dispatchers: list[Dispatcher] = []
        self.continuing: list[Dispatcher] = []
        self.woken: list[Link] = []
        self.waiters: Final = SyncWaiters()
        self.wanted: list[ChunkWanted] = []
        self.reader = ChunkReader()
        #: Where queues put what their memory has no room for.
        self.spill = Spill(SegmentNumbers(1))
        self.spill_waiters: list[SyncWaiter] = []
        #: Memory that the waiting messages of one queue may fill; below 0 there is no limit.
        self.window_bytes: i64 = -1
        #: It is looked at after each so many messages (a power of 2, less 1); pages are so large.
        self.window_mask: i64 = 63
        self.page_bytes: i64 = CHUNK_BYTES_MAX
        #: Consumers whose queue was deleted and that were not notified yet, and the group with the
        #: last record of such a deletion: they are not notified before it is durable.
        self.cancelled: list[Cancellable] = []
        self.cancelled_group: i64 = 0
        #: Deadlines, in the time of `now_ms`.
        self.timers = Timers()
        #: What records the events of messages, and the bits of a sequence that are zero where it
        #: does.
        self.events: MessageEvents | None = None
        self.event_mask: i64 = NO_EVENTS
        #: Messages to be dead-lettered when the batch's deliveries are done.
        self.letters = WaitingLetters()
        self.letters_dropped = LettersDropped()
        #: The last one that went to so many queues that the others had to wait.
        self._spreading: Task | None = None
        #: Chunks that were found damaged, for the shell to report and to keep a copy of.
        self.damaged: list[DamagedChunk] = []
        #: All damage that was found since the start.
        self.damage = DamageCounts()
        #: True while messages hold far more memory than they may.
        self.overfull = False
        #: True while the disk is nearly full: what can wait is not written.
        self.disk_short = False
        #: True when a long loop has more to do in the next turn.
        self.resume = False
        #: The number of the newest consumer.
        self.consumer_number: i64 = 0
        #: The shortest `x-consumer-timeout` that any queue ever had, in ms; 0 for none.
        self.consumer_timeout_ms_min: i64 = 0
        #: What each user has of that which a quota may limit, and the limits of users.
        self.quotas = Quotas(self)
        #: How long a publisher may be idle before its numbers are forgotten.
        self.publisher_expiry_ms: i64 = PUBLISHER_EXPIRY_MS
        #: What streams hold in memory though chunks have it.
        self.stream_cache = StreamCache(self)

    def attach(self, journal: Journal, spill: Spill, reader: ChunkReader) -> None:
        """Go on with the journal and the files of a data directory that was recovered."""
        self.journal = journal
        self.spill = spill
        self.reader = reader

    def follow(self, events: MessageEvents | None) -> None:
        """Record events with `events` from now on, or none."""
        self.events = events
        self.event_mask = NO_EVENTS if events is None else events.mask

    def start(self, operation: Iterator[int]) -> Task:
        """Do the first slice of a long operation (`Task`), and the others in later turns."""
        task = Task(self, operation)
        self.begin(task)
        return task

    def start_later(self, operation: Iterator[int]) -> Task:
        """Do a long operation in later turns."""
        task = Task(self, operation)
        self.works.append(task)
        return task

    def park(self, task: Task) -> None:
        """Continue a task once the group that its reply waits for is synced."""
        self.wait(Parked(self, task), task.group)

    def wake(self, task: Task) -> None:
        """Continue a task in the next round, if it waits for a sync."""
        if task.parked:
            task.parked = False
            self.works.append(task)

    def wait(self, waiter: SyncWaiter, group: i64) -> None:
        """Call `waiter` when `group` is synced."""
        self.waiters.add(waiter, group)

    def limit_acks(self, timeout_ms: i64) -> None:
        """Note that there is such a limit for how long a delivery may stay unacked."""
        if timeout_ms > 0 and (
            self.consumer_timeout_ms_min == 0 or timeout_ms < self.consumer_timeout_ms_min
        ):
            self.consumer_timeout_ms_min = timeout_ms

    def end_works(self) -> None:
        """Do all that is left of long operations: the broker stops in order."""
        while self.works:
            self.continue_works(WORK_STEPS_PER_TURN)
            if self.has_letters():
                self.dead_letter(LETTER_STEPS_PER_TURN)
                self.letter_steps = LETTER_STEPS_PER_TURN

    def recorded(self) -> None:
        """Note that the method at hand wrote a record which its reply must wait for."""
        self.reply_group = self.journal.group

    def must_wait(self, group: i64) -> bool:
        """Return whether what depends on the records up to `group` must wait for a sync."""
        journal = self.journal
        return group > journal.durable_group and (group < journal.group or journal.has_records())

    def notify_cancelled(self) -> None:
        """Notify the consumers whose queues were deleted, now or when the deletion is durable."""
        if not self.cancelled:
            return
        group = self.cancelled_group
        cancels = self.take_cancels()
        if self.must_wait(group):
            self.wait(cancels, group)
        else:
            cancels.notify()

    def take_cancels(self) -> Cancels:
        """Return these consumers for the caller to notify, and clear the list."""
        cancels = Cancels(self, self.cancelled)
        self.cancelled = []
        self.cancelled_group = 0
        return cancels

    def settle(self, continues: bool = True) -> None:
        """End a batch of input: deliver from the queues that it has scheduled, a slice of each.

        Once in a round, where it `continues`, all goes on that took longer than its slice, and the
        steps for deliveries, deadlines and dead letters are given anew.  The other batches of the
        round share what is left of them: so many small ones take no longer than one.
        """
        self.resume = False
        if continues:
            self.turn_end = self.steps + STEPS_PER_TURN
            self.begin_round()
        if continues and self.waiters.are_late():
            self.waiters.call(self, STEPS_PER_SLICE)
        if self.cancelled:
            self.notify_cancelled()
        if continues:
            self.dispatch_steps = max(self.dispatch_steps, 2 * TURN_SHARE_MIN)
        self._dispatch(continues)
        if continues:
            if self.works:
                self.continue_works(self._share(WORK_STEPS_PER_TURN, STEPS_PER_SLICE))
            self.timed_steps = self._share(TIMED_STEPS_PER_TURN, TURN_SHARE_MIN)
        if self.timed_steps > 0:
            # Added only now: what is called counts its own.
            self.spend_timed(self.timers.fire(self.now_ms, TIMERS_PER_TURN))
        if continues:
            self.letter_steps = self._share(LETTER_STEPS_PER_TURN, TURN_SHARE_MIN)
        if self.has_letters():
            self.dead_letter(self.letter_steps)
            if self.has_letters() and not self.is_writing_much():
                self.resume = True
        if continues:
            self.end_round()
        if self.events is not None:
            self.events.flush()
        if self.has_more() or (self.due() and not self.is_writing_much()):
            # While much is being written, the end of a write resumes it.
            self.resume = True

    def deliver_early(self) -> None:
        """Deliver from the queues that were scheduled, as far as the round has steps for it."""
        if self.dispatchers and self.dispatch_steps > 0:
            self._dispatch(False)

    def _share(self, most: i64, least: i64) -> i64:
        """Return how many steps of `most` are left to what comes now, and `least` in any case.

        So a turn in which connections, queues and long operations all have much to do takes little
        longer than one in which any of them has.
        """
        return min(most, max(self.turn_end - self.steps, least))

    def has_more(self) -> bool:
        """Return whether the next round has something to do, deadlines apart."""
        return (
            len(self.dispatchers) > 0
            or len(self.continuing) > 0
            or len(self.works) > 0
            or self.waiters.are_late()
            or self.rounds.any()
        )

    def must_go_on(self) -> bool:
        """Return whether another round must begin soon, whether input comes or not."""
        return self.resume or self.has_more() or len(self.woken) > 0 or self.is_round_long()

    def needs_files(self) -> bool:
        """Return whether the shell has chunks to read, to write or to remove, or damage to tell."""
        return (
            len(self.wanted) > 0
            or len(self.damaged) > 0
            or len(self.spill.unused) > 0
            or self.spill.waits
        )

    def _dispatch(self, continues: bool) -> None:
        """Deliver from the queues that were scheduled, then from those that continue.

        Queues that the steps of one turn do not suffice for come first in the next.  Those that
        continue have a least share of each round, whatever was scheduled in it.
        """
        last = self.steps + self.dispatch_steps
        continuing: list[Dispatcher] | None = None
        if continues and self.continuing:
            continuing = self.continuing
            self.continuing = []
        listed = self.dispatchers
        if listed:
            self.dispatchers = []
            asked = self._dispatch_all(listed, last)
            if asked < len(listed):
                self.dispatchers = listed[asked:] + self.dispatchers
        if continuing is not None:
            last = max(last, self.steps + TURN_SHARE_MIN)
            asked = self._dispatch_all(continuing, last)
            if asked < len(continuing):
                self.continuing = continuing[asked:] + self.continuing
        self.dispatch_steps = last - self.steps

    def _dispatch_all(self, listed: list[Dispatcher], last: i64) -> i64:
        """Deliver a slice of each until step `last`; return how many were asked.

        Many queues have smaller slices, so that each has its share of the turn.
        """
        share: i64 = max((last - self.steps) // len(listed), DISPATCH_SHARE_MIN)
        limit: i64 = min(share, SLICE_MESSAGES)
        asked: i64 = 0
        for dispatcher in listed:
            if self.steps >= last:
                break
            asked += 1
            self.steps += 1
            dispatcher.scheduled = False
            if dispatcher.dispatch(limit) and not dispatcher.scheduled:
                dispatcher.scheduled = True
                self.continuing.append(dispatcher)
        return asked

    def due(self) -> bool:
        """Return whether a deadline has passed."""
        next_ms = self.timers.next_ms()
        return next_ms != NO_DEADLINE and next_ms <= self.now_ms

    def has_letters(self) -> bool:
        """Return whether messages wait to be dead-lettered."""
        return self.letters.any()

    def waiting_letters(self) -> i64:
        """Return how many messages wait to be dead-lettered."""
        return self.letters.count()

    def spend_timed(self, steps: i64) -> None:
        """Count steps of what deadlines brought."""
        self.steps += steps
        self.timed_steps -= steps

    def is_writing_much(self) -> bool:
        """Return whether so much waits to be written that the broker must not add to it."""
        return (
            self.spill.unwritten_bytes > SPILL_BYTES_MAX
            or self.journal.unsynced_bytes > UNSYNCED_BYTES_MAX
        )

    def dead_letter(self, steps: i64) -> None:
        """Dead-letter messages in their order, about `steps` steps, as far as this turn has them.

        They may push others out of full queues, which are dead-lettered after them, and so on.
        """
        begun = self.steps
        last = begun + min(steps, self.letter_steps)
        most_bytes = self.held_bytes + LETTER_BYTES_PER_TURN
        while self.steps < last and self.held_bytes <= most_bytes and not self.is_writing_much():
            if self._spreading is not None and not self._spreading.over:
                break
            letter = self.letters.next()
            if letter is None:
                break
            self._dead_letter(letter)
        self.letter_steps -= self.steps - begun

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
        last = self.steps + TX_LETTER_STEPS_MAX
        for letter in self.letters.put_back(before):
            if self.steps < last:
                self._dead_letter(letter)
            else:
                self.letters.add(letter)

    def synced(self, group: i64) -> None:
        """Call those that wait for the groups up to `group`; of very many, the rest follows."""
        self.journal.synced(group)
        self.waiters.synced(group)
        self.waiters.call(self, STEPS_PER_SLICE)

    def wait_spilled(self, waiter: SyncWaiter) -> None:
        """Call `waiter` when chunks are written."""
        if not waiter.waits_for_spill:
            waiter.waits_for_spill = True
            self.spill_waiters.append(waiter)

    def spilled(self, batch: SpillBatch) -> None:
        """Take note that chunks are written, and call all that wait for it."""
        self.spill.written(batch)
        waiters = self.spill_waiters
        self.spill_waiters = []
        for waiter in waiters:
            waiter.waits_for_spill = False
            waiter.spilled()

    def take_woken(self, limit: i64) -> list[Link]:
        """Return the connections that the shell must look at, up to `limit`, and take them out."""
        woken = self.woken
        if len(woken) > limit:
            self.woken = woken[limit:]
            del woken[limit:]
        else:
            self.woken = []
        limits = self.consumer_timeout_ms_min > 0
        for link in woken:
            link.woken = False
            if limits:
                link.delivered()
        return woken

    def take_wanted(self) -> list[ChunkWanted]:
        """Return the chunks to read, and clear the list."""
        wanted = self.wanted
        self.wanted = []
        return wanted


def _in_turn(task: Task | None, operation: Iterator[int]) -> Iterator[int]:
    """Do an operation after a task that is under way, if there is one."""
    yield from after(task)
    yield from operation
