"""The opening of a connection: the steps between its accept and its own protocol, such as TLS.

An opening uses the slot of the connection.  As for any connection that has not logged in, it has a
time limit, it may lose its slot to another connection, and the limits on its peer's address apply.
The connection's own protocol, called the protocol above, is not called until the connection is
open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from leveret.session.admission import Admission, Slot

#: Logs a message; takes its level and its text.
Say = Callable[[str, str], None]

#: Returns an opening step that precedes the protocol of a connection that has a slot.
Open = Callable[[asyncio.Protocol, Slot, Admission], asyncio.Protocol]


class Openings:
    """The connections of one broker that are not open yet."""

    def __init__(self, seconds: float, say: Say) -> None:
        """`seconds` limits each step of an opening; `say` logs a line."""
        self.loop = asyncio.get_running_loop()
        self.seconds = seconds
        self.say = say
        self.pending: set[OpeningStep] = set()

    def stop(self) -> None:
        """Drop all connections that are not open yet."""
        for opening in tuple(self.pending):
            opening.abort()


class OpeningStep(asyncio.Protocol):
    """One step of an opening, after which the connection is passed to `upper`."""

    #: The action that the peer must take, for the log.
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
        #: Whether the connection was passed to `upper`.
        self.is_open = False
        #: Whether the connection is lost or was dropped.
        self.is_gone = False
        self._expel = slot.expel
        self._timer: asyncio.TimerHandle | None = None
        slot.expel = self._expelled

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit for the peer."""
        # uvloop's transports are not subclasses of asyncio's.
        self.raw = cast(asyncio.Transport, transport)
        openings = self.openings
        openings.pending.add(self)
        seconds = self.slot.opening_seconds(openings.seconds)
        self._timer = openings.loop.call_later(seconds, self._too_slow)
        if self.is_gone:
            self.raw.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the slot, or notify the protocol above if the connection is open."""
        self.is_gone = True
        if self.is_open:
            self.upper.connection_lost(exc)
        else:
            self._done()
            self.admission.leave(self.slot)

    def opened(self) -> None:
        """End the step, because the caller passes the connection to `upper` now."""
        self.is_open = True
        self._done()
        self.slot.expel = self._expel

    def abort(self) -> None:
        """Drop the connection, now or as soon as its socket is open."""
        self.is_gone = True
        if self.raw is not None:
            self.raw.abort()

    def refuse(self, reason: str, answer: bytes = b"") -> None:
        """Log the reason for a refusal, send an answer, and close the connection.

        A peer that does not read is dropped at the time limit.
        """
        self.openings.say("warning", f"closing the connection of {self.peer}: {reason}")
        if self.raw is not None:
            if answer:
                self.raw.write(answer)
            self.raw.close()

    @property
    def peer(self) -> str:
        """The address of the peer, for the log."""
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
