"""One client connection as the broker sees it, whatever protocol it speaks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.accounts import Accounts, ConnectionAccount
from leveret.broker.core.ownership import Owner
from leveret.broker.core.unacked_share import UnackedRoom
from leveret.broker.scheduler.costs import LATE_SLICE, SLICE
from leveret.broker.scheduler.effects import SyncWaiter

if TYPE_CHECKING:
    from leveret.broker.scheduler.scheduler import Scheduler


@mypyc_attr(allow_interpreted_subclasses=True)
class Link(SyncWaiter):
    """One client connection: the owner of exclusive queues, with output."""

    def __init__(self, scheduler: Scheduler, accounts: Accounts, name: str) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.name = name
        #: The user, whose connections share their turns; empty before `connection.open`.
        self.user = ""
        #: The vhost of the connection; empty before `connection.open`.
        self.vhost_name = ""
        #: The user as the owner of what they make in the vhost; None before `connection.open`.
        self.as_owner: Owner | None = None
        #: The memory that it holds beside messages.
        self.account: Final = ConnectionAccount(accounts)
        #: The messages that it was sent and has not acked.
        self.unacked: Final = UnackedRoom(scheduler.memory.unacked)
        #: False while the peer does not read: its consumers get nothing until it reads again.
        self.writable = True
        self.woken = False
        #: The value of `Scheduler.spent` at which its slice ends.
        self.slice_end: i64 = 0

    def wake(self) -> None:
        """Note that the shell must look at this connection after the batch."""
        if not self.woken:
            self.woken = True
            self.scheduler.woken.append(self)

    # -- its slice of the round --------------------------------------------------------------------

    def begin_slice(self) -> None:
        """Begin a slice; once input has had its share, begin a late one or wait for a turn."""
        scheduler = self.scheduler
        spent = scheduler.spent
        self.slice_end = spent + SLICE
        if spent >= scheduler.input_end:
            if spent < scheduler.late_end:
                self.slice_end = spent + LATE_SLICE
            else:
                self.yield_turn()

    def spend(self, cost: i64) -> None:
        """Count the cost of input; handle no more of it than the slice allows."""
        scheduler = self.scheduler
        scheduler.spent += cost
        if scheduler.spent >= self.slice_end:
            self.yield_turn()

    def check_slice(self) -> None:
        """End the slice if costs that were counted elsewhere have used it up."""
        if self.scheduler.spent >= self.slice_end:
            self.yield_turn()

    @abstractmethod
    def yield_turn(self) -> None:
        """Handle no more input until it is this connection's turn again (`Turns`)."""

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


def may_go_on(link: Link) -> bool:
    """Return whether anything is left of a connection's slice.

    It is called for each message.  The compiler inlines a function, but no method of this class.
    """
    return link.scheduler.spent < link.slice_end
