"""Who may be connected at once, and who goes where there are too many.

Connections take descriptors, of which a process has so many, and the store needs some of them.  So
there is a limit, and beyond it a newcomer gets the place of who has the least claim to his: the
oldest connection that has not logged in, else the one (of HTTP) that has been idle for the longest,
or has been sending the body of a request for the longest.
Connections at work, and those of AMQP that have logged in, are never sent away; where there are no
others the newcomer is.  Who is just logging in is passed over for others who are not.

An address that holds more than half of the places of those who have not logged in pays for its
newcomers itself, so that a flood from one address does not send away who is logging in from
another.

Invariant: who was sent away counts until he has left (his descriptor is open until then).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

#: So many who are just logging in are passed over for one newcomer.
PASSED_OVER_MAX: Final = 64

#: What `Admission.judge` says: come in; wait until somebody has left; go.
ROOM: Final = 0
WAIT: Final = 1
FULL: Final = 2


def network_of(host: str) -> str:
    """Return what counts as one address: of IPv6 the network of 64 bits that one peer has."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))


def is_nobody() -> bool:
    """Stand in for who tells by himself that he has logged in, or is never about to."""
    return False


@final
class Guest:
    """A connection: `expel` ends it, `is_known` tells whether it has logged in meanwhile.

    `is_asking` tells whether it is about to.
    """

    def __init__(
        self,
        network: str,
        expel: Callable[[], object],
        is_known: Callable[[], bool] = is_nobody,
        is_asking: Callable[[], bool] = is_nobody,
    ) -> None:
        self.network = network
        self.expel = expel
        self.is_known = is_known
        self.is_asking = is_asking
        #: True once he was sent away.
        self.leaving = False


@final
class Admission:
    """The places of one listener, or of all of them: `whole` is what this is a part of.

    A part may take `spare` places of the whole beyond its limit, which are kept for it.
    """

    def __init__(self, limit: int, whole: Admission | None = None, spare: int = 0) -> None:
        self.limit: i64 = limit
        self._whole = whole
        self._spare: i64 = spare
        #: All who have not left; the oldest first in this and the others.
        self.guests: dict[Guest, None] = {}
        self._strangers: dict[Guest, None] = {}
        self._by_network: dict[str, dict[Guest, None]] = {}
        self._idle: dict[Guest, None] = {}
        #: Who waits for a place; each is called once, when somebody has left.
        self._waiting: list[Callable[[], object]] = []
        # Counters.
        self.expelled: i64 = 0
        self.refused: i64 = 0

    def judge(self, network: str) -> int:
        """Return `ROOM`, or `FULL`, or `WAIT` after somebody was sent away for a newcomer."""
        verdict = self.judge_here(network, 0)
        if verdict == ROOM and self._whole is not None:
            verdict = self._whole.judge_here(network, self._spare)
        return verdict

    def judge_here(self, network: str, spare: i64) -> int:
        """As `judge`, for these places alone, with so many beyond the limit."""
        if len(self.guests) < self.limit + spare:
            return ROOM
        victim = self._victim(network)
        if victim is None:
            self.refused += 1
            return FULL
        self._send_away(victim)
        return WAIT

    def _send_away(self, victim: Guest) -> None:
        self._forget(victim)
        self.expelled += 1
        victim.leaving = True
        victim.expel()

    def _victim(self, network: str) -> Guest | None:
        """Return who goes for a newcomer from `network`, None where nobody may be sent away."""
        own = self._by_network.get(network)
        if own is not None and len(own) * 2 > len(self._strangers):
            victim = self._oldest_stranger(own)
            if victim is not None:
                return victim
        victim = self._oldest_stranger(self._strangers)
        if victim is not None:
            return victim
        for guest in self._idle:
            if not guest.leaving:
                return guest
        return None

    def _oldest_stranger(self, among: dict[Guest, None]) -> Guest | None:
        """Return the oldest who has not logged in; those who have are strangers no more."""
        passed_over: i64 = 0
        while among:
            guest = next(iter(among))
            if guest.leaving or guest.is_known():
                self._know(guest)
            elif passed_over < PASSED_OVER_MAX and guest.is_asking():
                passed_over += 1
                among[guest] = among.pop(guest)
            else:
                return guest
        return None

    def enter(self, guest: Guest, known: bool = False) -> None:
        """Give a place to who was told that there is room."""
        self.guests[guest] = None
        if not known:
            self._strangers[guest] = None
            self._by_network.setdefault(guest.network, {})[guest] = None
        if self._whole is not None:
            self._whole.enter(guest, known)

    def leave(self, guest: Guest) -> None:
        """Take the place back, if he has one."""
        if guest not in self.guests:
            return
        del self.guests[guest]
        self._forget(guest)
        if self._whole is not None:
            self._whole.leave(guest)
        waiting = self._waiting
        self._waiting = []
        for call in waiting:
            call()

    def when_left(self, call: Callable[[], object]) -> None:
        """Call once when somebody has left."""
        if self._whole is not None:
            self._whole.when_left(call)
        else:
            self._waiting.append(call)

    def make_room(self) -> None:
        """Send the oldest away who has not logged in, if there is one: something is short."""
        if self._whole is not None:
            self._whole.make_room()
            return
        victim = self._oldest_stranger(self._strangers)
        if victim is not None:
            self._send_away(victim)

    def recognise(self, guest: Guest) -> None:
        """Hear that somebody has logged in."""
        self._know(guest)
        if self._whole is not None:
            self._whole.recognise(guest)

    def rest(self, guest: Guest) -> None:
        """Hear that somebody who has logged in waits for nothing, or that he is waited for."""
        if guest in self.guests and guest not in self._strangers and not guest.leaving:
            self._idle[guest] = None
            if self._whole is not None:
                self._whole.rest(guest)

    def work(self, guest: Guest) -> None:
        """Hear that somebody waits for an answer."""
        self._idle.pop(guest, None)
        if self._whole is not None:
            self._whole.work(guest)

    def _know(self, guest: Guest) -> None:
        self._strangers.pop(guest, None)
        own = self._by_network.get(guest.network)
        if own is not None:
            own.pop(guest, None)
            if not own:
                del self._by_network[guest.network]

    def _forget(self, guest: Guest) -> None:
        """Take somebody out of those who may be sent away."""
        self._know(guest)
        self._idle.pop(guest, None)
