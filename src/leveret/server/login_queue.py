"""Whose password is verified next, and who is turned away, when more log in than can be verified.

A password costs some 20 ms, so that a thousand wrong ones at once would hold a first-come queue for
longer than anybody waits.  This queue cannot be held by a flood:

- pairs of address and user that have logged in before, addresses from which somebody has, and all
  others take turns;
- among each of these each address has its turn, and within an address each user, both in turn with
  whoever came last: he probably still waits, and a flood that has come already is behind him;
- of each user, each address and all together so many wait; one more turns away the oldest of the
  user that has the most in the address that has the most.

So behind a flood that has come a login waits for a few hashes.  While a flood goes on, it waits for
one or two hashes for each address that takes part; behind one from its own address and for its own
user, which nothing tells from it, it has to be lucky, unless that pair has logged in before.

Invariant: an address (a network of 64 bits of IPv6) has an entry for a place once at most.
"""

from __future__ import annotations

from typing import Final

from leveret.limits import (
    LOGINS_WAITING_MAX,
    LOGINS_WAITING_PER_NETWORK_MAX,
    LOGINS_WAITING_PER_USER_MAX,
)

#: What is known of who logs in: the user has logged in from there, or somebody has, or nobody.
PAIR_KNOWN: Final = 0
NETWORK_KNOWN: Final = 1
UNKNOWN: Final = 2


class Entry:
    """One password of a user that an address asks for; `place` names what is to be verified."""

    def __init__(self, network: str, user: str, place: bytes) -> None:
        self.network: Final = network
        self.user: Final = user
        self.place: Final = place


class _Group:
    """What waits of one address, or of one pair of address and user."""

    def __init__(self) -> None:
        #: The oldest first.
        self.entries: dict[Entry, None] = {}
        #: The same by user; who has his turn next is the first.
        self.users: dict[str, dict[Entry, None]] = {}
        self._newest_next = True

    def put(self, entry: Entry) -> None:
        self.entries[entry] = None
        self.users.setdefault(entry.user, {})[entry] = None

    def remove(self, entry: Entry) -> None:
        del self.entries[entry]
        own = self.users[entry.user]
        del own[entry]
        if not own:
            del self.users[entry.user]

    def take(self) -> Entry:
        """Take whoever came last, or the last one of the user whose turn it is."""
        newest = self._newest_next
        self._newest_next = not newest
        if newest:
            entry = next(reversed(self.entries))
        else:
            user, own = next(iter(self.users.items()))
            entry = next(reversed(own))
            # His next turn is behind those of the others.
            self.users[user] = self.users.pop(user)
        self.remove(entry)
        return entry

    def turn_away(self) -> Entry:
        """Take the oldest of the user that has the most."""
        own = max(self.users.values(), key=len)
        entry = next(iter(own))
        self.remove(entry)
        return entry


class _Line:
    """Groups that take turns, in turn with whoever came last."""

    def __init__(self, group_max: int) -> None:
        self._group_max = group_max
        self._groups: dict[str, _Group] = {}
        #: All that wait, the oldest first, and their groups.
        self._order: dict[Entry, str] = {}
        self._newest_next = True

    @property
    def size(self) -> int:
        """How many wait."""
        return len(self._order)

    def put(self, name: str, entry: Entry) -> list[Entry]:
        """Let an entry wait; return who is turned away for it."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group()
        group.put(entry)
        self._order[entry] = name
        away: list[Entry] = []
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

    def _turn_away(self) -> Entry:
        name, group = max(self._groups.items(), key=lambda item: len(item[1].entries))
        entry = group.turn_away()
        if not group.entries:
            del self._groups[name]
        return entry

    def take(self) -> Entry:
        """Take whoever came last, or an entry of the group whose turn it is; there is one."""
        newest = self._newest_next
        self._newest_next = not newest
        if newest:
            entry, name = next(reversed(self._order.items()))
            group = self._groups[name]
            group.remove(entry)
        else:
            name, group = next(iter(self._groups.items()))
            entry = group.take()
            # Its next turn is behind those of the others.
            self._groups[name] = self._groups.pop(name)
        if not group.entries:
            del self._groups[name]
        del self._order[entry]
        return entry


class LoginQueue:
    """The queue; for one loop."""

    def __init__(self) -> None:
        self._lines = (
            _Line(LOGINS_WAITING_PER_USER_MAX),
            _Line(LOGINS_WAITING_PER_NETWORK_MAX),
            _Line(LOGINS_WAITING_PER_NETWORK_MAX),
        )
        self._waiting: set[tuple[str, bytes]] = set()
        self._next = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def put(self, network: str, user: str, place: bytes, standing: int) -> list[Entry]:
        """Let a password wait; return those that are turned away for it, itself perhaps.

        `standing` is `PAIR_KNOWN`, `NETWORK_KNOWN` or `UNKNOWN`.
        """
        if (network, place) in self._waiting:
            return []
        self._waiting.add((network, place))
        entry = Entry(network, user, place)
        name = f"{network} {user}" if standing == PAIR_KNOWN else network
        away = self._lines[standing].put(name, entry)
        for one in away:
            self._waiting.discard((one.network, one.place))
        return away

    def take(self) -> Entry | None:
        """Take what is to be verified next, if anything waits."""
        for _ in self._lines:
            line = self._lines[self._next]
            self._next = (self._next + 1) % len(self._lines)
            if line.size > 0:
                entry = line.take()
                self._waiting.discard((entry.network, entry.place))
                return entry
        return None
