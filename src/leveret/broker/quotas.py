"""Quotas: limits on the queues, bindings and messages of users and virtual hosts.

Everything that a client creates counts for its user, identified by name and number
(`ownership.py`), and for its vhost.  A queue and a binding count for the user who declared them.  A
message counts for the owner of its queue, not for its publisher.  The owner is in the queue's
record, so it is the same after a restart; and the owner can purge or delete the queue, or limit its
length.

A quota refuses new objects and never removes existing ones; imports by the operator are counted but
not refused.

Messages are not counted one by one.  Every queue has the number of its messages, and its
`QuotaShare` the number at the last count.  While a quota is far from its limit, a queue is counted
again after at most `QUOTA_SLACK_MESSAGES` messages or `_QUOTA_SLACK_BYTES` bytes, at no cost to
publishers.  If all queues together could reach the quota before they are counted again, it is
*watched*: each publish is checked, and counted when it is accepted.

Invariants: if a quota is not watched, its use is below the limit, including everything published
since the last count; if it is watched, its use never exceeds the count, once all queues have been
counted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.scheduler.costs import QUEUES_COUNTED_PER_COST
from leveret.errors import PreconditionFailed

if TYPE_CHECKING:
    from leveret.broker.ownership import Owner
    from leveret.broker.scheduler.scheduler import Scheduler

#: The maximum messages and bytes that a queue accepts between two updates of a quota's count: a
#: classic queue updates it with every 64th message and with each large one, a stream with each
#: block.  While all queues of a user together cannot reach the quota, publishes are not checked.
QUOTA_SLACK_MESSAGES: Final = 4096
_QUOTA_SLACK_BYTES: Final = 64 * 65_536

#: How many queues are counted again, each time the scheduler runs, before a quota refuses
#: publishes, which takes 0.7 ms.  With more queues or more refusals, some publishes may still be
#: refused after messages have left.
QUOTA_RECOUNT_QUEUES: Final = 4096


MAX_QUEUES: Final = "max-queues"
MAX_BINDINGS: Final = "max-bindings"
MAX_MESSAGES: Final = "max-messages"
MAX_MESSAGE_BYTES: Final = "max-message-bytes"

#: The limits of users and of vhosts that are quotas.
QUOTAS: Final = (MAX_QUEUES, MAX_BINDINGS, MAX_MESSAGES, MAX_MESSAGE_BYTES)


@mypyc_attr(allow_interpreted_subclasses=True)
class QuotaShare:
    """The share of one queue in the message counts of its user and its vhost."""

    def __init__(self, vhost: Use, queues: i64) -> None:
        self.vhost: Final = vhost
        #: The user who declared the queue, and their counts; None for a queue that was imported,
        #: or recorded by an earlier release.
        self.owner: Owner | None = None
        self.user: Use | None = None
        #: The counts of the queue's vhost, and of its user.
        self.uses: list[Use] = [vhost]
        #: The number of queues that this share counts for the user: one, or none.
        self._queues: Final[i64] = queues
        #: Messages and their bytes at the last count.
        self.messages: i64 = 0
        self.bytes: i64 = 0
        #: True while each publish must be checked.
        self.watched = False
        #: The indexes in the lists of shares of the vhost and of the user.
        self.vhost_place: i64 = -1
        self.user_place: i64 = -1
        vhost.add_share(self)

    @abstractmethod
    def messages_now(self) -> i64:
        """Return how many messages the queue has."""

    @abstractmethod
    def bytes_now(self) -> i64:
        """Return the bytes (bodies and properties) of these messages."""

    @abstractmethod
    def follow(self) -> None:
        """Have `takes` check every publish if `watched` is set, otherwise none."""

    def give(self, owner: Owner | None, user: Use | None) -> None:
        """Transfer the queue and its messages to `owner`, whose counts are `user`."""
        self._take_away()
        self.owner = owner
        self.user = user
        if user is not None:
            self.uses.append(user)
            user.queues += self._queues
            user.messages += self.messages
            user.bytes += self.bytes
            user.add_share(self)
        self.judge()

    def _take_away(self) -> None:
        self.uses = [self.vhost]
        user = self.user
        if user is not None:
            user.queues -= self._queues
            user.messages -= self.messages
            user.bytes -= self.bytes
            user.remove_share(self)

    def judge(self) -> None:
        """Update the counts, and watch exactly the quotas that are near their limit."""
        self.count()
        for use in self.uses:
            use.judge()
        self.look()

    def look(self) -> None:
        """Set `watched` if a quota of the user or the vhost is watched."""
        watched = any(use.watched for use in self.uses)
        if watched != self.watched:
            self.watched = watched
            self.follow()

    def note(self) -> None:
        """Update the counts; must be called at least once per slack of new messages or bytes."""
        if any(use.counts_messages for use in self.uses):
            self.judge()

    def count(self) -> None:
        """Update the counts to the messages that the queue has now."""
        messages = self.messages_now() - self.messages
        size = self.bytes_now() - self.bytes
        if messages != 0 or size != 0:
            self._add(messages, size)

    def _add(self, messages: i64, size: i64) -> None:
        self.messages += messages
        self.bytes += size
        for use in self.uses:
            use.messages += messages
            use.bytes += size

    def has_room(self, size: i64) -> bool:
        """Return whether a message of `size` bytes is within the quotas."""
        if not self.watched:
            return True
        self.count()
        return all(use.has_room(1, size) for use in self.uses)

    def takes(self, size: i64) -> bool:
        """Count a message of `size` bytes before its publish; return False to refuse it."""
        taken = self.admits(1, size)
        if taken:
            self._add(1, size)
        return taken

    def admits(self, messages: i64, size: i64) -> bool:
        """Return whether the quotas have room for `messages` of `size` bytes; count a refusal.

        A message that replaces another adds no message (`messages` is 0).
        """
        self.count()
        for use in self.uses:
            if not use.has_room(messages, size):
                use.refused += 1
                return False
        return True

    def leaves(self, size: i64) -> None:
        """Stop counting a message that is moved to other queues immediately."""
        if self.watched:
            self.count()
            self._add(-1, -size)

    def end(self) -> None:
        """Stop counting, because the queue is deleted."""
        self._take_away()
        self.user = None
        self.vhost.messages -= self.messages
        self.vhost.bytes -= self.bytes
        self.vhost.remove_share(self)


@final
class Use:
    """The quota use of one user or vhost, and its limits; a negative number means no limit."""

    def __init__(self, label: str, scheduler: Scheduler, owner: Owner | None = None) -> None:
        #: The owner of the limits, for errors.
        self.label: Final = label
        #: The user; None for a vhost.
        self.owner: Final = owner
        #: True for a deleted user, whose objects stay, without limits.
        self.is_gone = False
        self._scheduler: Final = scheduler
        self.queues: i64 = 0
        self.queues_max: i64 = -1
        self.bindings: i64 = 0
        self.bindings_max: i64 = -1
        #: Messages and their bytes at the last count.
        self.messages: i64 = 0
        self.messages_max: i64 = -1
        self.bytes: i64 = 0
        self.bytes_max: i64 = -1
        #: Publishes that were refused by a message quota.
        self.refused: i64 = 0
        #: True if there is a message quota.
        self.counts_messages = False
        #: True while a message quota may be near its limit.
        self.watched = False
        #: The queues whose messages count, and the index of the next one to count again.
        self.shares: list[QuotaShare] = []
        self._next: i64 = 0
        #: True while all queues are being counted, and the queues left to count.
        self._counts_all = False
        self._uncounted: list[QuotaShare] = []
        #: How many queues may still be counted again while `Scheduler.full_at` has the value
        #: `_recounts_until`.
        self._recounts_left: i64 = QUOTA_RECOUNT_QUEUES
        self._recounts_until: i64 = 0

    def limit(self, limits: Mapping[str, int]) -> None:
        """Apply limits, by name."""
        self.queues_max = limits.get(MAX_QUEUES, -1)
        self.bindings_max = limits.get(MAX_BINDINGS, -1)
        self.messages_max = limits.get(MAX_MESSAGES, -1)
        self.bytes_max = limits.get(MAX_MESSAGE_BYTES, -1)
        self.counts_messages = self.messages_max >= 0 or self.bytes_max >= 0
        self._recount_all()

    def is_empty(self) -> bool:
        """Return whether nothing is counted."""
        return self.queues == 0 and self.bindings == 0 and not self.shares

    def add_share(self, share: QuotaShare) -> None:
        """Count the messages of a queue from now on.

        The shares are in a list, because a very large dict moves all its entries when it grows.
        """
        self._put(share, len(self.shares))
        self.shares.append(share)

    def remove_share(self, share: QuotaShare) -> None:
        """Stop counting the messages of a queue, if they are counted."""
        if not self.has_share(share):
            return
        place = self._place(share)
        last = self.shares.pop()
        if last is not share:
            self.shares[place] = last
            self._put(last, place)
        self._put(share, -1)

    def has_share(self, share: QuotaShare) -> bool:
        """Return whether the messages of a queue are counted."""
        place = self._place(share)
        return 0 <= place < len(self.shares) and self.shares[place] is share

    def _place(self, share: QuotaShare) -> i64:
        return share.vhost_place if self.owner is None else share.user_place

    def _put(self, share: QuotaShare, place: i64) -> None:
        if self.owner is None:
            share.vhost_place = place
        else:
            share.user_place = place

    # -- queues and bindings ----------------------------------------------------------------------

    def check_queues(self, name: str, count: i64) -> None:
        """Check that the quota allows `count` more queues, including `name`.

        Raises: PreconditionFailed (406).
        """
        if 0 <= self.queues_max < self.queues + count:
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit {self.label} ({self.queues_max}) "
                "is reached"
            )

    def check_bindings(self, source: str, count: i64) -> None:
        """Check that the quota allows `count` more bindings.

        Raises: PreconditionFailed (406).
        """
        if 0 <= self.bindings_max < self.bindings + count:
            raise PreconditionFailed(
                f"cannot bind to exchange '{source}': binding limit {self.label} "
                f"({self.bindings_max}) is reached"
            )

    # -- messages ---------------------------------------------------------------------------------

    def count_messages(self) -> None:
        """Count the messages of all queues, before a caller reads `messages` and `bytes`."""
        self._scheduler.spent += len(self.shares) // QUEUES_COUNTED_PER_COST
        for share in self.shares:
            share.count()

    def _fits(self, messages: i64, size: i64) -> bool:
        """Return whether `messages` of `size` bytes fit into the quota; 0 messages always do."""
        if messages > 0 and 0 <= self.messages_max < self.messages + messages:
            return False
        return messages + size == 0 or not 0 <= self.bytes_max < self.bytes + size

    def has_room(self, messages: i64, size: i64) -> bool:
        """Return whether there is room for `messages` more messages of `size` bytes.

        Called only while the quota is watched.
        """
        if not self._fits(messages, size):
            # Messages may have left since their queues were counted.
            self._recount(messages, size)
        return self._fits(messages, size)

    def _recount(self, messages: i64, size: i64) -> None:
        """Count queues again until the message fits; the next call continues.

        The number of queues per call is limited, because a message may be routed to many queues,
        and each of them calls this.
        """
        if self._recounts_until != self._scheduler.full_at:
            self._recounts_until = self._scheduler.full_at
            self._recounts_left = QUOTA_RECOUNT_QUEUES
        if self._recounts_left <= 0:
            return
        looked: i64 = 0
        most: i64 = min(self._recounts_left, len(self.shares))
        while looked < most:
            if self._next >= len(self.shares):
                self._next = 0
            self.shares[self._next].count()
            self._next += 1
            looked += 1
            if self._fits(messages, size):
                break
        self._recounts_left -= looked
        self._scheduler.spent += 1 + looked // QUEUES_COUNTED_PER_COST

    def judge(self) -> None:
        """Watch the quota if all queues together may reach it before they are counted again."""
        # Hysteresis, so as not to switch with every message.
        slack: i64 = (len(self.shares) + 1) * (2 if self.watched else 1)
        near = self.counts_messages and not self._fits(
            slack * QUOTA_SLACK_MESSAGES, slack * _QUOTA_SLACK_BYTES
        )
        if near != self.watched:
            self.watched = near
            self._recount_all()

    def _recount_all(self) -> None:
        """Count all queues, have them follow `watched`, and check again.

        Messages published to a queue before it is reached are not checked.
        """
        self._uncounted = list(self.shares)
        self._scheduler.spent += len(self._uncounted) >> 6
        if not self._counts_all:
            self._counts_all = True
            self._scheduler.start(self._count_all())

    def _count_all(self) -> Iterator[int]:
        while self._uncounted:
            share = self._uncounted.pop()
            if self.has_share(share):
                share.count()
                share.look()
            yield 1
        self._counts_all = False
        self.judge()


@final
class Quotas:
    """The quota use of all users; each vhost has its own `Use`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Final = scheduler
        #: The limits of each user who has any (`Users.limits`).
        self.user_limits: Final[dict[str, dict[str, int]]] = {}
        #: The limits of users without their own; empty if the data directory is from an earlier
        #: release.
        self.defaults: dict[str, int] = {}
        #: The default limit on message bytes, if there are defaults; a negative number means none.
        self.message_bytes: i64 = -1
        #: The users with any counted objects, by `Owner.key`.
        self.users: dict[str, Use] = {}

    def of(self, owner: Owner | None) -> Use | None:
        """Return a user's counts, or None if there is no owner."""
        if owner is None:
            return None
        use = self.users.get(owner.key)
        if use is None:
            use = self.users[owner.key] = Use(f"of user '{owner.name}'", self._scheduler, owner)
            use.limit(self.limits_of(owner.name))
        return use

    def set_defaults(self, defaults: Mapping[str, int]) -> None:
        """Set the default limits of users; if empty, there are no default limits."""
        self.defaults = dict(defaults)
        if defaults and self.message_bytes >= 0:
            self.defaults.setdefault(MAX_MESSAGE_BYTES, int(self.message_bytes))
        for use in self.users.values():
            if use.owner is not None and not use.is_gone:
                use.limit(self.limits_of(use.owner.name))

    def limits_of(self, name: str) -> dict[str, int]:
        """Return the limits of a user: the defaults, replaced by their own."""
        return {**self.defaults, **self.user_limits.get(name, {})}

    def forget_unused(self, use: Use | None) -> None:
        """Drop the counts of a user who no longer has any objects."""
        if use is not None and use.owner is not None and use.is_empty():
            self.users.pop(use.owner.key, None)


@final
class BindingCounts:
    """Counts the bindings of one vhost for the quotas of the vhost and of its users."""

    def __init__(self, use: Use, quotas: Quotas) -> None:
        self._use: Final = use
        self._quotas: Final = quotas

    def check(self, source: str, count: i64, by: Owner | None) -> None:
        """Check that the vhost and the user `by` may have `count` more bindings from `source`.

        Bindings without a user, such as imported ones, are counted but never refused.

        Raises: PreconditionFailed (406).
        """
        use = self._quotas.of(by)
        if use is not None:
            try:
                self._use.check_bindings(source, count)
                use.check_bindings(source, count)
            finally:
                self._quotas.forget_unused(use)

    def count(self, by: Owner | None, count: i64) -> None:
        """Count a binding for the vhost and its user: 1 for a new one, -1 for a removed one."""
        self._use.bindings += count
        use = self._quotas.of(by)
        if use is not None:
            use.bindings += count
            self._quotas.forget_unused(use)
