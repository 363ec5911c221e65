"""Limits the number of connections, and at the limit chooses one to close for a new one.

A process has a limited number of file descriptors, and the store needs some of them, so the number
of connections is limited.  At the limit, a new connection takes the slot of an existing one, in
this order:

- a closed connection whose socket lingers until the peer has sent the rest of its data;
- the oldest connection that has not authenticated, preferably one that is not in the middle of a
  login;
- the HTTP connection that has been idle, or sending the body of a request, for the longest.

HTTP connections that wait for an answer and authenticated AMQP connections are never closed for
others.  If there are only such connections, the new one is refused.

If an address holds more than half of the unauthenticated slots, its new connections take its own
slots, so that a flood from one address does not close connections that are authenticating from
another.

Invariant: a connection that was closed for another counts until its descriptor is closed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from leveret.limits import OPENING_PERCENT

#: The maximum number of authenticating connections that one search for a victim passes over.
PASSED_OVER_MAX: Final = 64

#: The results of `Admission.request`: a slot is free; one will be free soon; none can be freed.
ROOM: Final = 0
WAIT: Final = 1
FULL: Final = 2


def network_of(host: str) -> str:
    """Return the address that limits apply to: for IPv6 the /64 network, which has one owner."""
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
    """Return False: a connection with this callback calls `authenticated`, or never logs in."""
    return False


@final
class Slot:
    """The slot of one connection.

    `expel` closes the connection, `is_authenticated` returns whether it has authenticated, and
    `is_authenticating` whether its login is being verified or completed.
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
        #: How long the connection waited to be accepted; 0 once an opening stage has counted it.
        self.waited_ms: i64 = 0

    def opening_seconds(self, seconds: float) -> float:
        """Return the time left, in seconds, for an opening stage that may take `seconds`.

        The first stage includes the time that the connection waited to be accepted.  At least half
        of its time is left, so that a busy broker does not cut off a peer before reading from it.
        """
        waited = self.waited_ms
        self.waited_ms = 0
        return max(seconds * OPENING_PERCENT / 100 - waited / 1000, seconds / 2)

    def leave(self) -> None:
        """Drop the reference to the closed connection, to break the reference cycle."""
        self.leaving = True
        self.expel = never
        self.is_authenticated = never
        self.is_authenticating = never


@final
class Admission:
    """The slots of one listener, or of several that share them."""

    def __init__(self, limit: int) -> None:
        self.limit: i64 = limit
        #: The slots of all connections that have not left; like those below, oldest first.
        self.slots: dict[Slot, None] = {}
        self._unauthenticated: dict[Slot, None] = {}
        self._by_network: dict[str, dict[Slot, None]] = {}
        self._idle: dict[Slot, None] = {}
        #: The slots of closed connections whose sockets linger.
        self.lingering: dict[Slot, None] = {}
        #: Callbacks to call once, when a connection has left.
        self._waiting: list[Callable[[], object]] = []
        # Counters.
        self.expelled: i64 = 0
        self.refused: i64 = 0

    def request(self, network: str) -> int:
        """Return `ROOM` or `FULL`, or close a connection for the new one and return `WAIT`."""
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
        """Return the slot to close for a connection from `network`, or None if none may be."""
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
        """Return the oldest slot that has not authenticated, and remove those that have."""
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
        """Add the slot of a new connection, after `request` returned `ROOM`."""
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
        """Free the slot, because the socket no longer lingers."""
        self.lingering.pop(slot, None)
        self.leave(slot)

    def when_left(self, call: Callable[[], object]) -> None:
        """Call `call` once, when the next connection has left."""
        self._waiting.append(call)

    def make_room(self) -> None:
        """Close the oldest unauthenticated connection, if any, because a resource is short."""
        victim = self._oldest_unauthenticated(self._unauthenticated)
        if victim is not None:
            self._expel(victim)

    def relocate(self, slot: Slot, network: str) -> None:
        """Count an unauthenticated connection under the client address that its proxy sent."""
        if slot in self._unauthenticated:
            own = self._by_network[slot.network]
            own.pop(slot, None)
            if not own:
                del self._by_network[slot.network]
            self._by_network.setdefault(network, {})[slot] = None
        slot.network = network

    def idle(self, slot: Slot) -> None:
        """Mark an authenticated connection as idle, because the broker waits for its client."""
        if slot in self.slots and slot not in self._unauthenticated and not slot.leaving:
            self._idle[slot] = None

    def busy(self, slot: Slot) -> None:
        """Mark a connection as busy, because its client waits for an answer."""
        self._idle.pop(slot, None)

    def authenticated(self, slot: Slot) -> None:
        """Mark a connection as authenticated."""
        self._unauthenticated.pop(slot, None)
        own = self._by_network.get(slot.network)
        if own is not None:
            own.pop(slot, None)
            if not own:
                del self._by_network[slot.network]

    def _forget(self, slot: Slot) -> None:
        """Remove a connection from those that may be closed for others."""
        self.authenticated(slot)
        self._idle.pop(slot, None)
