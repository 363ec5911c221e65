"""A connection between its accept and its own protocol, for example during a TLS handshake.

An opening has the connection's slot from the start.  It ends in time whatever the peer does, gives
its slot to others when they need it, and counts by the address of its peer, like any connection
that has not logged in.  The protocol above gets the connection once it is open, and no call before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from leveret.session.admission import Admission, Slot

#: Takes a level and a text.
Say = Callable[[str, str], None]

#: Puts an opening before the protocol of a connection that has a slot.
Open = Callable[[asyncio.Protocol, Slot, Admission], asyncio.Protocol]


class Openings:
    """The connections of one broker that are being opened."""

    def __init__(self, seconds: float, say: Say) -> None:
        """Limit each step of an opening to `seconds`; `say` takes lines for the log."""
        self.loop = asyncio.get_running_loop()
        self.seconds = seconds
        self.say = say
        self.pending: set[OpeningStep] = set()

    def stop(self) -> None:
        """Drop all of them."""
        for opening in tuple(self.pending):
            opening.abort()


class OpeningStep(asyncio.Protocol):
    """One step of an opening; `upper` gets the connection after it."""

    #: The action that a slow peer failed to take, for the log.
    step = "open its connection"

    def __init__(
        self, openings: Openings, upper: asyncio.Protocol, slot: Slot, admission: Admission
    ) -> None:
        self.openings = openings
        self.upper = upper
        self.slot = slot
        self.admission = admission
        #: The transport below; None until the socket is open.
        self.raw: asyncio.Transport | None = None
        #: True once `upper` has the connection.
        self.is_open = False
        #: True once the connection is lost, or was dropped before its socket was open.
        self.is_gone = False
        self._expel = slot.expel
        self._timer: asyncio.TimerHandle | None = None
        slot.expel = self._expelled

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the peer."""
        # uvloop's transports are not subclasses of asyncio's.
        self.raw = cast(asyncio.Transport, transport)
        openings = self.openings
        openings.pending.add(self)
        seconds = self.slot.opening_seconds(openings.seconds)
        self._timer = openings.loop.call_later(seconds, self._too_slow)
        if self.is_gone:
            self.raw.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the slot, or tell the protocol above."""
        self.is_gone = True
        if self.is_open:
            self.upper.connection_lost(exc)
        else:
            self._done()
            self.admission.leave(self.slot)

    def opened(self) -> None:
        """Pass the connection's slot to `upper`, which gets the connection now."""
        self.is_open = True
        self._done()
        self.slot.expel = self._expel

    def abort(self) -> None:
        """Drop the connection, now or as soon as its socket is open."""
        self.is_gone = True
        if self.raw is not None:
            self.raw.abort()

    def refuse(self, reason: str, answer: bytes = b"") -> None:
        """Log the reason for a refusal, send the peer an answer, and close.

        A peer that does not read is dropped after its time limit.
        """
        self.openings.say("warning", f"closing the connection of {self.peer}: {reason}")
        if self.raw is not None:
            if answer:
                self.raw.write(answer)
            self.raw.close()

    @property
    def peer(self) -> str:
        """The peer's address, for the log."""
        name = self.raw.get_extra_info("peername") if self.raw is not None else None
        return f"{name[0]}:{name[1]}" if name else self.slot.network

    def _done(self) -> None:
        self.openings.pending.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        seconds = self.openings.seconds
        self.openings.say(
            "warning",
            f"dropping the connection of {self.peer}: it did not {self.step} in {seconds:g} s",
        )
        self.abort()

    def _expelled(self) -> None:
        text = f"closing one that did not {self.step} yet, from '{self.slot.network}'"
        self.openings.say("warning", f"too many connections: {text}")
        self.abort()
