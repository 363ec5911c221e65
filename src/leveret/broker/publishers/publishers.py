"""Publisher deduplication: a message sent again after a crash is taken once.

Messages with the headers `x-publisher` (the publisher's name) and `x-publishing-id` (a growing
number) are deduplicated.  A queue or stream drops such a message if it has taken one of the same
publisher with the same or a higher number.  The publisher gets the same answer as if the message
had been taken.  This applies only to publishes of clients: dead letters and delayed messages are
routed whatever their number is.  A message without `x-publishing-id` is always taken.

The numbers survive a crash together with the messages.  Replaying the journal counts its messages
again, so that a number and its message are both restored or both lost.  Checkpoints contain the
numbers.

In each queue, a publisher's name belongs to the user who first published with it (`ownership`),
because another user's messages with that name would make the queue drop the owner's next ones.  The
owner has a separate record in addition to the first message, because messages do not contain their
users.

A name with the prefix of this broker's own client (`CLIENT_PREFIX`) belongs to a connection, and is
never used again after the connection ends.  It expires sooner, so that short-lived connections do
not fill the table.

Invariants: a number counts only if its message was taken; a publisher is forgotten after it was
idle for longer than its expiry, and no sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.ownership import MAX_PUBLISHERS, Owner, Quota, is_free_for, owner_fields
from leveret.broker.scheduler.accounts import MarkAccount
from leveret.broker.scheduler.timers import Timed
from leveret.limits import (
    CLIENT_PUBLISHER_EXPIRY_MS,
    PUBLISHERS_PER_QUEUE_MAX,
    PUBLISHERS_PER_USER_MAX,
)
from leveret.wire.numbered import Numbered

if TYPE_CHECKING:
    from leveret.broker.core import Core

#: The memory of a publisher in addition to its name.
PUBLISHER_BYTES: Final = 250


#: The operation that transfers a publisher's name, as errors name it.
GIVE_PUBLISHER: Final = "set_publisher_owner"

#: The prefix of the names that `leveret.client` gives its connections.
CLIENT_PREFIX: Final = b"leveret-client."

#: The shortest time between two searches of a full table for idle publishers.
_SWEEP_MS: Final = 1000


@final
@mypyc_attr(acyclic=True)
class PublisherProgress:
    """The state of a publisher: the highest number taken, and the time (ms) of its last message."""

    __slots__ = ("is_client", "number", "offered", "owner", "time_ms")

    def __init__(self, name: bytes, number: i64, time_ms: i64, owner: Owner | None = None) -> None:
        self.is_client: Final = name.startswith(CLIENT_PREFIX)
        self.number: i64 = number
        self.time_ms: i64 = time_ms
        #: None if an earlier release recorded it.  The first user to publish with the name becomes
        #: its owner.
        self.owner: Owner | None = owner
        #: The user to whom the owner offers the name.
        self.offered: Owner | None = None


@final
class Publishers(Timed):
    """The publishers of one queue by name."""

    def __init__(self, core: Core) -> None:
        super().__init__()
        self.core = core
        self.by_name: dict[bytes, PublisherProgress] = {}
        self.quota: Final = Quota(core.quotas.user_limits, MAX_PUBLISHERS, PUBLISHERS_PER_USER_MAX)
        self.account: Final = MarkAccount(core.accounts)
        self._swept_ms: i64 = 0
        self._has_clients = False
        # The owners in records, until all publishers are restored.
        self.recorded_owners: dict[bytes, Owner] = {}

    def known(self, name: bytes) -> PublisherProgress | None:
        """Return a publisher, or None if it is unknown or was idle for too long."""
        known = self.by_name.get(name)
        return None if known is None or self._is_idle(known) else known

    def is_free(self, name: bytes, by: Owner | None) -> bool:
        """Return whether `by` may publish with a name, because no other user owns it."""
        known = self.known(name)
        return known is None or is_free_for(known.owner, by)

    def has_room(self, name: bytes, by: Owner | None) -> bool:
        """Return whether the publisher is known, or `by` may add one."""
        if name in self.by_name or self._is_roomy(by):
            return True
        if self.core.now_ms - self._swept_ms >= _SWEEP_MS:
            self._sweep()
        return self._is_roomy(by)

    def check_quota(self, to: Owner, count: int, queue: str) -> None:
        """Check that a user may have `count` more names.  Raises: PreconditionFailed (406)."""
        self.quota.check(
            to,
            f"publisher names in queue '{queue}'",
            "delete an unused one (leveret ctl delete_publisher)",
            count,
        )

    def _is_roomy(self, by: Owner | None) -> bool:
        roomy = len(self.by_name) < PUBLISHERS_PER_QUEUE_MAX and self.account.has_room()
        return roomy and self.quota.has_room(by)

    def note(self, numbered: Numbered, by: Owner | None) -> bool:
        """Count a message of `by` that was taken; return whether `by` became the name's owner."""
        now_ms = self.core.now_ms
        name = numbered.publisher
        known = self.by_name.get(name)
        if known is None:
            self._add(name, PublisherProgress(name, numbered.number, now_ms, by))
            self.quota.add(by)
            self._arm()
            return by is not None
        taken = by is not None and (known.owner is None or self._is_idle(known))
        known.number = numbered.number
        known.time_ms = now_ms
        if taken and by is not None and not by.is_same(known.owner):
            self.give(known, by)
            return True
        return False

    def give(self, known: PublisherProgress, to: Owner) -> None:
        """Make `to` the owner of a name; the caller journals this."""
        self.quota.remove(known.owner)
        known.owner = to
        known.offered = None
        self.quota.add(to)

    def forget(self, name: bytes) -> None:
        """Forget a name, which may then start with any number; the caller journals this."""
        known = self.by_name.pop(name, None)
        if known is not None:
            self.account.book(-PUBLISHER_BYTES - len(name))
            self.quota.remove(known.owner)
        self.recorded_owners.pop(name, None)

    def called(self, text: str) -> list[bytes]:
        """Return the names shown as `text`, several if they are not valid UTF-8."""
        name = text.encode("utf-8", "surrogateescape")
        if self.known(name) is not None:
            return [name]
        return [
            one
            for one in self.by_name
            if one.decode("utf-8", "replace") == text and self.known(one) is not None
        ]

    def learn(self, name: bytes, number: i64, time_ms: i64) -> None:
        """Count a message taken before a restart, which may be a repeat."""
        known = self.by_name.get(name)
        if known is None:
            self._add(name, PublisherProgress(name, number, time_ms))
            self.quota.add(None)
            return
        expiry_ms = self._expiry_ms(known.is_client)
        if time_ms - known.time_ms > expiry_ms:
            # The publisher had expired in between.
            known.number = number
            known.time_ms = time_ms
        elif known.time_ms - time_ms <= expiry_ms:
            known.number = max(known.number, number)
            known.time_ms = max(known.time_ms, time_ms)

    def restored(self) -> None:
        """Start expiring idle publishers.  If there are too many, forget the oldest at once."""
        for name, owner in self.recorded_owners.items():
            known = self.by_name.get(name)
            if known is not None:
                self.give(known, owner)
        self.recorded_owners = {}
        self._sweep()
        if len(self.by_name) > PUBLISHERS_PER_QUEUE_MAX:
            oldest = sorted(self.by_name, key=self._time_of)[:-PUBLISHERS_PER_QUEUE_MAX]
            for name in oldest:
                self.forget(name)
        self._arm()

    def _time_of(self, name: bytes) -> int:
        return int(self.by_name[name].time_ms)

    def _add(self, name: bytes, publisher: PublisherProgress) -> None:
        self.by_name[name] = publisher
        self.account.book(PUBLISHER_BYTES + len(name))
        if publisher.is_client and not self._has_clients:
            self._has_clients = True
            self.core.timers.cancel(self)  # clients expire sooner

    def _expiry_ms(self, is_client: bool) -> i64:
        """Return the time for which a publisher may be idle."""
        expiry_ms = self.core.publisher_expiry_ms
        return min(expiry_ms, CLIENT_PUBLISHER_EXPIRY_MS) if is_client else expiry_ms

    def _is_idle(self, known: PublisherProgress) -> bool:
        return self.core.now_ms - known.time_ms > self._expiry_ms(known.is_client)

    def _sweep(self) -> None:
        """Forget the publishers that have been idle for too long."""
        self._swept_ms = self.core.now_ms
        idle = [name for name, known in self.by_name.items() if self._is_idle(known)]
        for name in idle:
            self.forget(name)
        self._has_clients = any(known.is_client for known in self.by_name.values())

    def _arm(self) -> None:
        """Set the timer to the earliest time at which a publisher may expire."""
        if not self.by_name:
            self.core.timers.cancel(self)
        elif self.deadline_ms < 0:
            self.core.timers.set(self, self.core.now_ms + self._expiry_ms(self._has_clients) + 1)

    def due(self, now_ms: i64) -> None:
        """Forget the publishers that have been idle for too long."""
        self._sweep()
        self._arm()

    def drop(self) -> None:
        """Forget all publishers, because the queue is deleted."""
        self.by_name.clear()
        self.account.end()
        self.quota.clear()
        self.core.timers.cancel(self)


def publisher_record(queue_id: i64, name: bytes, owner: Owner | None) -> dict[str, object]:
    """Return the record of the owner of a publisher's name in a queue."""
    return {"id": int(queue_id), "name": name, **owner_fields(owner)}
