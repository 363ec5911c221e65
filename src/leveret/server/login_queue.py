"""The queue of passwords to verify, and the choice of rejected logins when it is full.

A password costs about 20 ms to verify, so a thousand wrong ones at once would block a first-come
queue for longer than any client waits.  A flood cannot block this queue:

- There are three classes, which alternate: logins of a user from an address where this user has
  logged in before, other logins from an address where any user has, and all others.
- Within a class, addresses alternate, and within an address, users do.  Every second time, the
  newest login is taken instead, because its client probably still waits, and an earlier flood is
  older.
- Each user, each address and the whole queue have a limit.  Beyond the limit of a user, the oldest
  login of that user is rejected; beyond that of an address, the oldest login of its user with the
  most logins; beyond that of the queue, the same at the address with the most logins.

So after a flood has arrived, a new login waits for a few hashes.  During a flood, it waits for one
or two hashes per address of the flood.  A login with the same address and user as the flood cannot
be distinguished from it and may be rejected, unless this pair has logged in before.

Invariant: an address (for IPv6 a /64 network) has at most one entry for a password of a user.
"""

from __future__ import annotations

from typing import Final

from leveret.limits import (
    LOGINS_WAITING_MAX,
    LOGINS_WAITING_PER_NETWORK_MAX,
    LOGINS_WAITING_PER_USER_MAX,
)

#: The history of a login: this user has logged in from the address, another user has, or none has.
PAIR_KNOWN: Final = 0
NETWORK_KNOWN: Final = 1
UNKNOWN: Final = 2


class PendingLogin:
    """A password to verify, for an address; `place` identifies the user and the password."""

    def __init__(self, network: str, user: str, place: bytes) -> None:
        self.network: Final = network
        self.user: Final = user
        self.place: Final = place


class _Group:
    """The waiting entries of one address, or of one pair of address and user."""

    def __init__(self) -> None:
        #: The entries, oldest first.
        self.entries: dict[PendingLogin, None] = {}
        #: The entries by user; the first user is next in order.
        self.users: dict[str, dict[PendingLogin, None]] = {}
        self._newest_next = True

    def put(self, entry: PendingLogin) -> None:
        self.entries[entry] = None
        self.users.setdefault(entry.user, {})[entry] = None

    def remove(self, entry: PendingLogin) -> None:
        del self.entries[entry]
        own = self.users[entry.user]
        del own[entry]
        if not own:
            del self.users[entry.user]

    def take(self) -> PendingLogin:
        """Remove and return an entry: alternately the newest one, and the next user's newest."""
        newest = self._newest_next
        self._newest_next = not newest
        if newest:
            entry = next(reversed(self.entries))
        else:
            user, own = next(iter(self.users.items()))
            entry = next(reversed(own))
            # The user moves to the end of the order.
            self.users[user] = self.users.pop(user)
        self.remove(entry)
        return entry

    def turn_away(self) -> PendingLogin:
        """Remove and return the oldest entry of the user with the most entries."""
        own = max(self.users.values(), key=len)
        entry = next(iter(own))
        self.remove(entry)
        return entry


class _TurnQueue:
    """One class of logins: groups that alternate, but every second entry is the newest of all."""

    def __init__(self, group_max: int) -> None:
        self._group_max = group_max
        self._groups: dict[str, _Group] = {}
        #: All waiting entries, oldest first, and the names of their groups.
        self._order: dict[PendingLogin, str] = {}
        self._newest_next = True

    @property
    def size(self) -> int:
        """The number of waiting entries."""
        return len(self._order)

    def put(self, name: str, entry: PendingLogin) -> list[PendingLogin]:
        """Add an entry; return the entries that are rejected because of it."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group()
        group.put(entry)
        self._order[entry] = name
        away: list[PendingLogin] = []
        own = group.users[entry.user]
        if len(own) > LOGINS_WAITING_PER_USER_MAX:
            oldest = next(iter(own))
            group.remove(oldest)
            away.append(oldest)
        elif len(group.entries) > self._group_max:
            away.append(group.turn_away())
        elif self.size > LOGINS_WAITING_MAX:
            away.append(self._turn_away())
        for one in away:
            del self._order[one]
        return away

    def _turn_away(self) -> PendingLogin:
        name, group = max(self._groups.items(), key=lambda item: len(item[1].entries))
        entry = group.turn_away()
        if not group.entries:
            del self._groups[name]
        return entry

    def take(self) -> PendingLogin:
        """Remove and return an entry: alternately the newest one, and one of the next group.

        There must be an entry.
        """
        newest = self._newest_next
        self._newest_next = not newest
        if newest:
            entry, name = next(reversed(self._order.items()))
            group = self._groups[name]
            group.remove(entry)
        else:
            name, group = next(iter(self._groups.items()))
            entry = group.take()
            # The group moves to the end of the order.
            self._groups[name] = self._groups.pop(name)
        if not group.entries:
            del self._groups[name]
        del self._order[entry]
        return entry


class LoginQueue:
    """The queue of passwords to verify; not thread-safe."""

    def __init__(self) -> None:
        self._lines = (
            _TurnQueue(LOGINS_WAITING_PER_USER_MAX),
            _TurnQueue(LOGINS_WAITING_PER_NETWORK_MAX),
            _TurnQueue(LOGINS_WAITING_PER_NETWORK_MAX),
        )
        self._waiting: set[tuple[str, bytes]] = set()
        self._next = 0

    def __len__(self) -> int:
        """Return the number of waiting entries."""
        return len(self._waiting)

    def put(self, network: str, user: str, place: bytes, standing: int) -> list[PendingLogin]:
        """Add a password; return the rejected entries, possibly including the new one.

        `standing` is `PAIR_KNOWN`, `NETWORK_KNOWN` or `UNKNOWN`.
        """
        if (network, place) in self._waiting:
            return []
        self._waiting.add((network, place))
        entry = PendingLogin(network, user, place)
        name = f"{network} {user}" if standing == PAIR_KNOWN else network
        away = self._lines[standing].put(name, entry)
        for one in away:
            self._waiting.discard((one.network, one.place))
        return away

    def take(self) -> PendingLogin | None:
        """Return and remove the next entry to verify, or return None if no entry waits."""
        for _ in self._lines:
            line = self._lines[self._next]
            self._next = (self._next + 1) % len(self._lines)
            if line.size > 0:
                entry = line.take()
                self._waiting.discard((entry.network, entry.place))
                return entry
        return None
