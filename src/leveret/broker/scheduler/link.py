"""The broker's view of a client connection, of any protocol."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.ownership import Owner
from leveret.broker.scheduler.accounts import Accounts, ConnectionAccount
from leveret.broker.scheduler.costs import CONNECTION_CLOSED, LATE_SLICE, SLICE, VISITED_PER_COST
from leveret.broker.scheduler.effects import SyncWaiter
from leveret.broker.scheduler.unacked_share import UnackedRoom

if TYPE_CHECKING:
    from leveret.broker.scheduler.scheduler import Scheduler


@mypyc_attr(allow_interpreted_subclasses=True)
class Link(SyncWaiter):
    """A client connection, which has output and owns exclusive queues."""

    def __init__(self, scheduler: Scheduler, accounts: Accounts, name: str) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.name = name
        #: The user, whose connections share turns (`Turns`); empty before `connection.open`.
        self.user = ""
        #: The vhost of the connection; empty before `connection.open`.
        self.vhost_name = ""
        #: The user as the owner of objects created in the vhost; None before `connection.open`.
        self.as_owner: Owner | None = None
        #: The memory of the connection in addition to messages.
        self.account: Final = ConnectionAccount(accounts)
        #: The memory of messages that were delivered and not acked.
        self.unacked: Final = UnackedRoom(scheduler.memory.unacked)
        #: False while the peer does not read.  Its consumers get nothing until it reads again.
        self.writable = True
        self.woken = False
        #: The value of `Scheduler.spent` at which its slice ends.
        self.slice_end: i64 = 0

    def wake(self) -> None:
        """Have the shell handle this connection after the batch."""
        if not self.woken:
            self.woken = True
            self.scheduler.woken.append(self)

    # -- its slice of the round --------------------------------------------------------------------

    def begin_slice(self) -> None:
        """Begin a slice, or a late one if the share of input is used up, or wait for a turn."""
        scheduler = self.scheduler
        spent = scheduler.spent
        self.slice_end = spent + SLICE
        if spent >= scheduler.input_end:
            if spent < scheduler.late_end:
                self.slice_end = spent + LATE_SLICE
            else:
                self.yield_turn()

    def spend(self, cost: i64) -> None:
        """Count the cost of input, and stop handling input at the end of the slice."""
        scheduler = self.scheduler
        scheduler.spent += cost
        if scheduler.spent >= self.slice_end:
            self.yield_turn()

    def check_slice(self) -> None:
        """End the slice if costs counted elsewhere have used it up."""
        if self.scheduler.spent >= self.slice_end:
            self.yield_turn()

    @abstractmethod
    def yield_turn(self) -> None:
        """Handle no more input until it is this connection's turn again (`Turns`)."""

    @abstractmethod
    def take_turn(self) -> None:
        """Handle a slice of the input, because it is this connection's turn."""

    # -- notifications -----------------------------------------------------------------------------

    @abstractmethod
    def alarm(self, blocked: bool, reason: str) -> None:
        """Handle the start of an alarm that blocks publishers (with its `reason`), or its end."""

    @abstractmethod
    def channel_count(self) -> i64:
        """Return how many channels are open."""

    @abstractmethod
    def access_changed(self) -> None:
        """Handle a change of the user's permissions."""

    @abstractmethod
    def check_consumers(self) -> Iterator[int]:
        """Cancel consumers without read permission (behaviour 74: cached permissions)."""

    @abstractmethod
    def force(self, text: str) -> None:
        """Close the connection for the operator or the broker (320)."""

    def delivered(self) -> None:
        """Start the time limit for acks, if any, because deliveries may have been written."""

    def superseded(self) -> None:
        """End the connection, because its client lost it and has opened another."""

    def lose_exclusive(self, queue_id: i64) -> None:
        """Handle the deletion of an exclusive queue of the connection."""


def may_go_on(link: Link) -> bool:
    """Return whether anything is left of a connection's slice.

    Not a method, because it is called for each message and a method call takes three times as long.
    """
    return link.scheduler.spent < link.slice_end


def close_links(links: list[Link], text: str, *, user: str = "", vhost: str = "") -> Iterator[int]:
    """Close those of `links` that belong to `user`, or are in `vhost`; their clients get `text`.

    Closing a connection takes some tens of microseconds, not counting its channels, consumers and
    queues, which a separate task releases.  Connections opened in the meantime stay open.
    """
    # The next link is the last entry.
    left = links[::-1]
    passed: i64 = 0
    while left:
        link = left.pop()
        if (user and link.user == user) or (vhost and link.vhost_name == vhost):
            link.force(text)
            yield CONNECTION_CLOSED
        else:
            passed += 1
            yield 1 if passed % VISITED_PER_COST == 0 else 0
