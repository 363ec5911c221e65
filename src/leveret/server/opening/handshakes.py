"""Computes TLS handshakes in a thread outside the event loop.

A handshake costs up to a millisecond (RSA), and a peer can start one with a single packet.  In the
event loop, a flood of handshakes would block everything.  OpenSSL releases the GIL, so a thread
uses another core.

Addresses alternate, and so do the newest and the oldest handshake of an address.  A peer that
connects during a flood waits for only a few handshakes, even if the flood comes from its own
address.

Invariant: a connection has at most one step waiting or in progress, and only that step uses its TLS
object.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor


class OpeningHandshake(ABC):
    """The handshake of one connection, which is computed in steps."""

    @abstractmethod
    def calculate(self) -> None:
        """Compute a step from the received input; runs in the thread and must not raise."""

    @abstractmethod
    def calculated(self) -> None:
        """Handle the result of the step; runs in the event loop."""


class Handshakes:
    """The queue of handshake steps to compute, for one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "tls")
        #: The waiting steps by address, in order; within an address, oldest first.
        self._waiting: dict[str, dict[OpeningHandshake, None]] = {}
        self._newest_next = True
        self._busy = False
        self._stopped = False

    def stop(self) -> None:
        """Drop the waiting steps and end the thread."""
        self._stopped = True
        self._waiting.clear()
        self._thread.shutdown(cancel_futures=True)

    def request(self, network: str, handshake: OpeningHandshake) -> None:
        """Queue a step of a handshake."""
        self._waiting.setdefault(network, {})[handshake] = None
        self._go_on()

    def forget(self, network: str, handshake: OpeningHandshake) -> None:
        """Drop the waiting step of a lost connection, if it has one."""
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
            # The address moves to the end of the order.
            self._waiting[network] = group
        self._busy = True
        self._thread.submit(self._work, handshake)

    def _work(self, handshake: OpeningHandshake) -> None:
        handshake.calculate()
        # The event loop may be closed already.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._done, handshake)

    def _done(self, handshake: OpeningHandshake) -> None:
        self._busy = False
        self._go_on()
        handshake.calculated()
