"""One turn of the broker: the effects that the core has gathered while it handled a batch of input.

The core does no I/O.  While it works it notes which queues have something to hand out, which
connections have output (*wake*), what it waits to be synced for, which chunks it must read, and
whether a long loop has to go on (*resume*).  The shell looks at the notes once per batch, never
once per message.

Invariants: an object is listed at most once in each list; nothing here calls into a shell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.effects import (
    Cancellable,
    Cancels,
    ChunkReader,
    ChunkWanted,
    DamagedChunk,
    DeadMessage,
    SpillWaiter,
    SyncWaiter,
)
from leveret.broker.core.events import MessageEvents
from leveret.broker.core.memory import HeldMemory
from leveret.broker.core.ownership import Owner
from leveret.broker.core.stream_cache import StreamCache
from leveret.broker.core.timers import Timers
from leveret.broker.values.letters import LettersDropped
from leveret.clock import NO_DEADLINE
from leveret.limits import (
    CHUNK_BYTES_MAX,
    LETTER_STEPS_PER_TURN,
    LETTERS_WAITING_MAX,
    PUBLISHER_EXPIRY_MS,
    SLICE_MESSAGES,
    SPILL_BYTES_MAX,
    TIMED_STEPS_PER_TURN,
    TIMERS_PER_TURN,
    UNSYNCED_BYTES_MAX,
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
class Link(SpillWaiter):
    """One client connection as the broker sees it: the owner of exclusive queues, with output."""

    def __init__(self, turn: Turn, name: str) -> None:
        super().__init__()
        self.turn = turn
        self.name = name
        #: The user and the vhost of the connection; empty before `connection.open`.
        self.user = ""
        self.vhost_name = ""
        #: The user as the owner of what he makes in the vhost; None before `connection.open`.
        self.as_owner: Owner | None = None
        #: False while the peer does not read: its consumers get nothing until it reads again.
        self.writable = True
        self.woken = False

    def wake(self) -> None:
        """Note that the shell must look at this connection after the batch."""
        if not self.woken:
            self.woken = True
            self.turn.woken.append(self)

    def alarm(self, blocked: bool, reason: str) -> None:
        """Take note that publishers are blocked, or are not any more; `reason` says why."""
        raise RuntimeError("a link says what an alarm means to it")

    def channel_count(self) -> i64:
        """Return how many channels are open."""
        raise RuntimeError("a link counts its channels")

    def access_changed(self) -> None:
        """Take note that the permissions of the user have changed."""
        raise RuntimeError("a link knows what its user may do")

    def force(self, text: str) -> None:
        """Close the connection for the operator or the broker (320)."""
        raise RuntimeError("a link says how it ends")


@mypyc_attr(allow_interpreted_subclasses=True)
class Dispatcher(SyncWaiter):
    """Something that delivers messages to consumers: a queue or a stream."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
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

    def dispatch(self, limit: i64) -> bool:
        """Deliver at most `limit` messages; return whether more could be delivered at once."""
        raise RuntimeError("a dispatcher says what it hands out")


class Turn(HeldMemory):
    """The effects that one call into the core has gathered, and what all of the core shares."""

    #: How many of `dead_lettering` are done.
    dead_lettered: i64 = 0
    #: Steps that are left in this turn for dead letters, and for what deadlines bring.
    letter_steps: i64 = LETTER_STEPS_PER_TURN
    timed_steps: i64 = TIMED_STEPS_PER_TURN
    #: True while messages hold far more memory than they may.
    overfull: bool = False
    #: True while the disk is nearly full: what can wait is not written.
    disk_short: bool = False

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self.journal = journal
        #: What the journal has cost the disk since the start.
        self.io = IoCounts()
        #: Wall time in ms, set by the shell once per batch; it never goes back or jumps.
        self.now_ms: i64 = 0
        #: How many changes of the state that clients share began, published messages apart, which
        #: their connections count.  Who changes it counts before the first step: so one who meets
        #: an exception that nobody expected knows whether anything may be half done.
        self.changes: i64 = 0
        self.dispatchers: list[Dispatcher] = []
        self.woken: list[Link] = []
        self.waiters: list[SyncWaiter] = []
        self.wanted: list[ChunkWanted] = []
        self.reader = ChunkReader()
        #: Where queues put what their memory has no room for.
        self.spill = Spill(SegmentNumbers(1))
        self.spill_waiters: list[SpillWaiter] = []
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
        #: Messages to be dead-lettered when the batch's deliveries are done, and those that are
        #: being dead-lettered, from `dead_lettered` on.
        self.dead_messages: list[DeadMessage] = []
        self.dead_lettering: list[DeadMessage] = []
        self.letters_dropped = LettersDropped()
        #: Chunks that were found damaged, for the shell to report and to keep a copy of.
        self.damaged: list[DamagedChunk] = []
        #: All damage that was found since the start.
        self.damage = DamageCounts()
        #: True when a long loop has more to do in the next turn.
        self.resume = False
        #: The group whose sync the reply to the method at hand must wait for; 0 for none.
        self.reply_group: i64 = 0
        #: The shortest `x-consumer-timeout` that any queue ever had, in ms; 0 for none.
        self.consumer_timeout_ms_min: i64 = 0
        #: The limits of each user that has any (`Users.limits`).
        self.user_limits: dict[str, dict[str, int]] = {}
        #: How long a publisher may be idle before its numbers are forgotten.
        self.publisher_expiry_ms: i64 = PUBLISHER_EXPIRY_MS
        #: What streams hold in memory though chunks have it.
        self.stream_cache = StreamCache(self)

    def follow(self, events: MessageEvents | None) -> None:
        """Record events with `events` from now on, or none."""
        self.events = events
        self.event_mask = NO_EVENTS if events is None else events.mask

    def wait(self, waiter: SyncWaiter, group: i64) -> None:
        """Call `waiter` when `group` is synced."""
        if waiter.waits_for == 0:
            waiter.waits_for = group
            self.waiters.append(waiter)

    def limit_acks(self, timeout_ms: i64) -> None:
        """Note that a queue limits how long its deliveries may stay unacked."""
        if timeout_ms > 0 and (
            self.consumer_timeout_ms_min == 0 or timeout_ms < self.consumer_timeout_ms_min
        ):
            self.consumer_timeout_ms_min = timeout_ms

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
        cancels = Cancels(self.cancelled)
        self.cancelled = []
        self.cancelled_group = 0
        return cancels

    def settle(self) -> None:
        """Deliver messages from every queue that was scheduled, a slice of each."""
        self.resume = False
        if self.cancelled:
            self.notify_cancelled()
        listed = self.dispatchers
        if listed:
            self.dispatchers = []
            for dispatcher in listed:
                dispatcher.scheduled = False
                if dispatcher.dispatch(SLICE_MESSAGES):
                    dispatcher.schedule()
                    self.resume = True
        self.timed_steps = TIMED_STEPS_PER_TURN
        self.timers.fire(self.now_ms, TIMERS_PER_TURN)
        self.letter_steps = LETTER_STEPS_PER_TURN
        if self.has_letters():
            self.dead_letter()
            self.letter_steps = LETTER_STEPS_PER_TURN
            if self.has_letters() and not self.is_writing_much():
                self.resume = True
        if self.events is not None:
            self.events.flush()
        if self.dispatchers or (self.due() and not self.is_writing_much()):
            # While much is being written, the end of a write resumes it.
            self.resume = True

    def due(self) -> bool:
        """Return whether a deadline has passed."""
        next_ms = self.timers.next_ms()
        return next_ms != NO_DEADLINE and next_ms <= self.now_ms

    def has_letters(self) -> bool:
        """Return whether messages wait to be dead-lettered."""
        return len(self.dead_messages) > 0 or len(self.dead_lettering) > 0

    def waiting_letters(self) -> i64:
        """Return how many messages wait to be dead-lettered."""
        return len(self.dead_messages) + len(self.dead_lettering) - self.dead_lettered

    def may_expire(self) -> i64:
        """Return how many messages may expire now: few while many dead letters wait."""
        return min(self.timed_steps, LETTERS_WAITING_MAX - self.waiting_letters())

    def is_writing_much(self) -> bool:
        """Return whether so much waits to be written that the broker must not add to it."""
        return (
            self.spill.unwritten_bytes > SPILL_BYTES_MAX
            or self.journal.unsynced_bytes > UNSYNCED_BYTES_MAX
        )

    def dead_letter(self) -> None:
        """Dead-letter messages in their order, as many as this turn has steps for.

        They may push others out of full queues, which are dead-lettered after them, and so on.
        """
        while self.letter_steps > 0 and not self.is_writing_much():
            if self.dead_lettered == len(self.dead_lettering):
                self.dead_lettering = self.dead_messages
                self.dead_lettered = 0
                self.dead_messages = []
                if not self.dead_lettering:
                    return
            self.changes += 1
            letter = self.dead_lettering[self.dead_lettered]
            self.dead_lettered += 1
            self.letter_steps -= letter.dead_letter()
        if self.dead_lettered == len(self.dead_lettering):
            self.dead_lettering = []
            self.dead_lettered = 0

    def dead_letter_own(self, before: list[DeadMessage]) -> None:
        """Dead-letter what was added since `before` was put aside, and put that list back first.

        A transaction contains its own dead letters and no others.
        """
        own = self.dead_messages
        self.dead_messages = before
        for letter in own:
            self.changes += 1
            letter.dead_letter()

    def synced(self, group: i64) -> None:
        """Call all that wait for the groups up to `group`."""
        self.journal.synced(group)
        waiters = self.waiters
        self.waiters = []
        for waiter in waiters:
            if waiter.waits_for <= group:
                waiter.waits_for = 0
                waiter.synced(group)
            else:
                self.waiters.append(waiter)

    def wait_spilled(self, waiter: SpillWaiter) -> None:
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

    def take_woken(self) -> list[Link]:
        """Return the connections that the shell must look at, and clear the list."""
        woken = self.woken
        self.woken = []
        for link in woken:
            link.woken = False
        return woken

    def take_wanted(self) -> list[ChunkWanted]:
        """Return the chunks to read, and clear the list."""
        wanted = self.wanted
        self.wanted = []
        return wanted
