"""How many connections there may be at once, and which one is closed where there are too many.

Connections take descriptors, of which a process has so many, and the store needs some of them.  So
there is a limit, and beyond it a new connection gets the slot of the one with the least claim to
it: the oldest that has not authenticated, else the one (of HTTP) that has been idle for the
longest, or has been sending the body of a request for the longest.
A closed connection that only lingers, until its peer has sent the rest, is dropped before these.
Connections at work, and those of AMQP that have authenticated, are never closed for others; where
there are none but these the new one is refused.  One that is just authenticating is passed over
where there are others.

An address that holds more than half of the slots of connections that have not authenticated pays
for its new ones itself, so that a flood from one address does not close connections that are
authenticating from another.

Invariant: a connection that was closed for another counts until it has left (its descriptor is open
until then).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from leveret.limits import OPENING_PERCENT

#: So many that are just authenticating are passed over for one new connection.
PASSED_OVER_MAX: Final = 64

#: What `Admission.request` answers: there is a slot; one will be free; there is none.
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


def never() -> bool:
    """Answer for a connection that reports by itself that it has authenticated, or never does."""
    return False


@final
class Slot:
    """The slot of one connection.

    `expel` closes the connection, `is_authenticated` tells whether it has authenticated meanwhile,
    `is_authenticating` whether it is about to.
    """

    def __init__(
        self,
        network: str,
        expel: Callable[[], object],
        is_authenticated: Callable[[], bool] = never,
        is_authenticating: Callable[[], bool] = never,
    ) -> None:
        self.network = network
        self.expel = expel
        self.is_authenticated = is_authenticated
        self.is_authenticating = is_authenticating
        #: True once the connection was closed for another.
        self.leaving = False
        #: How long the connection waited to be accepted, as far as no stage of its opening has
        #: counted that yet.
        self.waited_ms: i64 = 0

    def opening_seconds(self, seconds: float) -> float:
        """Return when a stage of the opening is cut off that may take so many seconds, from now on.

        The first stage began with the connect, but half of its time is left to it in any case: a
        peer that waited for a busy broker is heard before it is judged.
        """
        waited = self.waited_ms
        self.waited_ms = 0
        return max(seconds * OPENING_PERCENT / 100 - waited / 1000, seconds / 2)

    def leave(self) -> None:
        """Drop the reference to the closed connection, so that the two are no cycle."""
        self.leaving = True
        self.expel = never
        self.is_authenticated = never
        self.is_authenticating = never


@final
class Admission:
    """The slots of one listener, or of several that share them."""

    def __init__(self, limit: int) -> None:
        self.limit: i64 = limit
        #: Of all connections that have not left; the oldest first in this and the others.
        self.slots: dict[Slot, None] = {}
        self._unauthenticated: dict[Slot, None] = {}
        self._by_network: dict[str, dict[Slot, None]] = {}
        self._idle: dict[Slot, None] = {}
        #: The slots of closed connections whose sockets linger.
        self.lingering: dict[Slot, None] = {}
        #: What is called once, when a connection has left.
        self._waiting: list[Callable[[], object]] = []
        # Counters.
        self.expelled: i64 = 0
        self.refused: i64 = 0

    def request(self, network: str) -> int:
        """Return `ROOM`, or `FULL`, or `WAIT` after a connection was closed for a new one."""
        if len(self.slots) < self.limit:
            return ROOM
        victim = self._victim(network)
        if victim is None:
            self.refused += 1
            return FULL
        self._expel(victim)
        return WAIT

    def _expel(self, victim: Slot) -> None:
        self._forget(victim)
        self.expelled += 1
        victim.leaving = True
        victim.expel()

    def _victim(self, network: str) -> Slot | None:
        """Return what is closed for a connection from `network`, None where nothing may be."""
        for slot in self.lingering:
            if not slot.leaving:
                return slot
        own = self._by_network.get(network)
        if own is not None and len(own) * 2 > len(self._unauthenticated):
            victim = self._oldest_unauthenticated(own)
            if victim is not None:
                return victim
        victim = self._oldest_unauthenticated(self._unauthenticated)
        if victim is not None:
            return victim
        for slot in self._idle:
            if not slot.leaving:
                return slot
        return None

    def _oldest_unauthenticated(self, among: dict[Slot, None]) -> Slot | None:
        """Return the oldest that has not authenticated; those that have are taken off the list."""
        passed_over: i64 = 0
        while among:
            slot = next(iter(among))
            if slot.leaving or slot.is_authenticated():
                self.authenticated(slot)
            elif passed_over < PASSED_OVER_MAX and slot.is_authenticating():
                passed_over += 1
                among[slot] = among.pop(slot)
            else:
                return slot
        return None

    def enter(self, slot: Slot, authenticated: bool = False) -> None:
        """Take a slot, after `request` answered that there is one."""
        self.slots[slot] = None
        if not authenticated:
            self._unauthenticated[slot] = None
            self._by_network.setdefault(slot.network, {})[slot] = None

    def leave(self, slot: Slot) -> None:
        """Free the slot of an ended connection, unless it has none or its socket still lingers."""
        if slot not in self.slots or slot in self.lingering:
            return
        del self.slots[slot]
        self._forget(slot)
        slot.leave()
        waiting = self._waiting
        self._waiting = []
        for call in waiting:
            call()

    def linger(self, slot: Slot, expel: Callable[[], object]) -> None:
        """Keep the slot of a closed connection until `lingered` is called.

        `expel` closes the socket.
        """
        slot.expel = expel
        # The slot must not keep the connection in memory.
        slot.is_authenticated = slot.is_authenticating = never
        if slot in self.slots:
            self._forget(slot)
            self.lingering[slot] = None

    def lingered(self, slot: Slot) -> None:
        """Free the slot: the socket no longer lingers."""
        self.lingering.pop(slot, None)
        self.leave(slot)

    def when_left(self, call: Callable[[], object]) -> None:
        """Call once when a connection has left."""
        self._waiting.append(call)

    def make_room(self) -> None:
        """Close the oldest that has not authenticated, if there is one: something is short."""
        victim = self._oldest_unauthenticated(self._unauthenticated)
        if victim is not None:
            self._expel(victim)

    def relocate(self, slot: Slot, network: str) -> None:
        """Count a connection that has not authenticated by the address that its proxy named."""
        if slot in self._unauthenticated:
            own = self._by_network[slot.network]
            own.pop(slot, None)
            if not own:
                del self._by_network[slot.network]
            self._by_network.setdefault(network, {})[slot] = None
        slot.network = network

    def idle(self, slot: Slot) -> None:
        """Note that an authenticated connection is idle, or that the broker waits for it."""
        if slot in self.slots and slot not in self._unauthenticated and not slot.leaving:
            self._idle[slot] = None

    def busy(self, slot: Slot) -> None:
        """Note that a connection waits for an answer."""
        self._idle.pop(slot, None)

    def authenticated(self, slot: Slot) -> None:
        """Note that a connection has authenticated."""
        self._unauthenticated.pop(slot, None)
        own = self._by_network.get(slot.network)
        if own is not None:
            own.pop(slot, None)
            if not own:
                del self._by_network[slot.network]

    def _forget(self, slot: Slot) -> None:
        """Take a connection out of those that may be closed for others."""
        self.authenticated(slot)
        self._idle.pop(slot, None)
