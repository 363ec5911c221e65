"""The share of the memory for unacked messages of all connections.

Unacked messages stay in memory until the consumer acks them or its channel ends.  To prevent a
consumer that never acks from blocking publishers, all connections together have a share of the
memory.  While it is used up, each user may use an equal part of it, and each connection of a user
an equal part of that.  A connection at its limit gets no more deliveries until it has acked some.
All connections of a user together may use two parts, so that one connection that uses a whole part
leaves room for the others.  Beyond twice the share they may use only half a part, so that new users
cannot take more and more memory.

A connection reserves more than it uses, and makes another reservation when that is used up.  So a
delivery and its ack cost one addition each.  Once a second the connection gives the unused part
back.  When the share is used up, every connection must reserve before each delivery, so that room
reserved for small messages is not used for a large one.

Invariants: the total of the share is the sum of all reservations; no connection uses more than it
has reserved; no connection has a limit while the share is used up.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.limits import MESSAGE_OVERHEAD_BYTES

#: The room reserved in advance is as much as is already used, within these limits.
_AHEAD_LEAST: Final = 4096
_AHEAD_MOST: Final = 65_536


class UnackedShare:
    """The memory of unacked messages that all connections share."""

    def __init__(self) -> None:
        self.bytes: i64 = 0
        #: The size of the share; a negative number means no limit.
        self.bytes_max: i64 = -1
        #: The users whose connections have reserved anything.
        self.users: dict[str, UnackedUser] = {}
        #: The connections whose `limit` is not 0.
        self._limited: dict[UnackedRoom, None] = {}

    def is_reached(self) -> bool:
        """Return whether the share is used up."""
        return 0 <= self.bytes_max <= self.bytes

    def limit_all(self, most: i64) -> None:
        """Set the size of the share; connections keep their messages even if they exceed it."""
        self.bytes_max = most
        if self.is_reached():
            self.unlimit_all()

    def limit(self, room: UnackedRoom) -> None:
        """Let a connection use its reservation without calling `reserve` again."""
        room.limit = room.reserved
        self._limited[room] = None

    def unlimit(self, room: UnackedRoom) -> None:
        """Require a connection to call `reserve` before its next delivery."""
        room.limit = 0
        self._limited.pop(room, None)

    def unlimit_all(self) -> None:
        """Require all connections to reserve before each delivery, because the share is used up.

        A connection has a limit only if it has reserved since the last call, so the loop costs at
        most one iteration for each reservation.
        """
        for room in self._limited:
            room.limit = 0
        self._limited.clear()

    def grants(self, room: UnackedRoom) -> bool:
        """Return whether a connection may reserve more."""
        most = self.bytes_max
        if not self.is_reached():
            return True
        user = self.users.get(room.user)
        if user is None:
            return most > 0
        part: i64 = most // len(self.users)
        if user.bytes >= (2 * part if self.bytes < 2 * most else part // 2):
            return False
        rooms: i64 = user.rooms if room.reserved > 0 else user.rooms + 1
        return room.reserved < part // rooms


@final
class UnackedUser:
    """The bytes reserved by the connections of one user, and the number of those connections."""

    def __init__(self) -> None:
        self.bytes: i64 = 0
        self.rooms: i64 = 0


@final
class UnackedRoom:
    """The unacked bytes of one connection, with 200 more for each message, and its reservation."""

    def __init__(self, share: UnackedShare) -> None:
        #: Unacked bytes.
        self.bytes: i64 = 0
        self.reserved: i64 = 0
        #: Before a delivery, `reserve` must be called unless `bytes` is below this.
        self.limit: i64 = 0
        self.user = ""
        #: True while deliveries wait for room.
        self.refused = False
        self._share: Final = share
        self._warned = False
        self._ended = False

    def reserve(self) -> bool:
        """Reserve room for the next deliveries; return False if there is none."""
        share = self._share
        if share.is_reached() and not self._ended:
            self._book(self.bytes)
        if self._ended or not share.grants(self):
            self.refused = True
            return False
        self.refused = False
        if not share.is_reached():
            self._book(self.bytes + _ahead(self.bytes))
            if not share.is_reached():
                share.limit(self)
        return True

    def has_room(self) -> bool:
        """Return whether one more message, of any size, may be delivered."""
        return self.bytes < self.limit or self.reserve()

    def hold(self, size: i64) -> None:
        """Count a delivered message of `size` bytes; reserve more if it exceeds the reservation.

        Messages differ in size, so the last one may exceed the remaining room.
        """
        self.bytes += size + MESSAGE_OVERHEAD_BYTES
        if self.bytes > self.limit and self.bytes > self.reserved and not self._ended:
            self._book(self.bytes)
            if self.limit > 0:
                self.limit = self.reserved

    def settle(self) -> bool:
        """Give back unused room; return whether refused deliveries may continue."""
        if self._ended:
            return False
        needed: i64 = self.bytes
        if needed > 0 and self.limit > 0:
            needed += _ahead(needed)
        if self.reserved > needed:
            self._book(needed)
            if needed == 0:
                self._share.unlimit(self)
            elif self.limit > 0:
                self.limit = needed
        return self.refused and self.has_room()

    def warning(self) -> str:
        """Return the log message about waiting deliveries, at most once per connection, or ""."""
        if self._warned or not self.refused:
            return ""
        self._warned = True
        return (
            f"deliveries wait for acks: the connection holds {self.bytes} bytes of unacked "
            f"messages, and all connections may hold {self._share.bytes_max} (unacked_bytes_max)"
        )

    def end(self) -> None:
        """Give everything back, because the connection ended."""
        self._book(0)
        self._share.unlimit(self)
        self._ended = True

    def _book(self, size: i64) -> None:
        """Set the reservation to `size` bytes."""
        more: i64 = size - self.reserved
        if more == 0:
            return
        share = self._share
        user = share.users.get(self.user)
        if user is None:
            user = share.users[self.user] = UnackedUser()
        if self.reserved == 0:
            user.rooms += 1
        elif size == 0:
            user.rooms -= 1
        self.reserved = size
        user.bytes += more
        share.bytes += more
        if user.rooms == 0:
            del share.users[self.user]
        if more > 0 and share.is_reached():
            share.unlimit_all()


def _ahead(size: i64) -> i64:
    """Return the room that a connection with `size` unacked bytes reserves in advance."""
    return min(max(size, _AHEAD_LEAST), _AHEAD_MOST)
