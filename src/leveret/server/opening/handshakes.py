"""The handshakes of TLS, calculated in a thread beside the loop.

A handshake costs up to a millisecond (RSA), and a peer has it for one packet.  In the loop a flood
of them would hold everybody; OpenSSL lets go of the GIL, so that here it takes another core.

Addresses take turns, and within an address the newest one and the oldest one do: a peer behind a
flood waits for a few handshakes, also behind one from its own address.

Invariant: a connection waits once at most, and only its step in the thread touches its TLS object.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor


class Handshake(ABC):
    """One connection's handshake."""

    @abstractmethod
    def calculate(self) -> None:
        """Go on with what the peer has sent; in the thread.  It raises nothing."""

    @abstractmethod
    def calculated(self) -> None:
        """Act on that; in the loop."""


class Handshakes:
    """The handshakes that wait, of one loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "tls")
        #: By address, which takes turns in this order; the oldest of each first.
        self._waiting: dict[str, dict[Handshake, None]] = {}
        self._newest_next = True
        self._busy = False
        self._stopped = False

    def stop(self) -> None:
        """Calculate nothing more."""
        self._stopped = True
        self._waiting.clear()
        self._thread.shutdown(cancel_futures=True)

    def request(self, network: str, handshake: Handshake) -> None:
        """Have a step calculated when it is the turn of the address."""
        self._waiting.setdefault(network, {})[handshake] = None
        self._go_on()

    def forget(self, network: str, handshake: Handshake) -> None:
        """Calculate a step no more whose connection is gone, if it waits."""
        group = self._waiting.get(network)
        if group is not None:
            group.pop(handshake, None)
            if not group:
                del self._waiting[network]

    def _go_on(self) -> None:
        if self._busy or self._stopped or not self._waiting:
            return
        network = next(iter(self._waiting))
        group = self._waiting.pop(network)
        newest = self._newest_next
        self._newest_next = not newest
        handshake = next(reversed(group)) if newest else next(iter(group))
        del group[handshake]
        if group:
            # Its next turn is behind those of the others.
            self._waiting[network] = group
        self._busy = True
        self._thread.submit(self._work, handshake)

    def _work(self, handshake: Handshake) -> None:
        handshake.calculate()
        # A loop that is closed wants to hear nothing.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._done, handshake)

    def _done(self, handshake: Handshake) -> None:
        self._busy = False
        self._go_on()
        handshake.calculated()
