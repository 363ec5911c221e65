"""The states of a connection, the transitions between them, and the reasons to halt its input.

A connection parses its input unless it is *halted*.  The reasons to halt are bits of
`ClientSession.halted`.  Several may be set at once; parsing resumes when none is left.
The state alone determines `HALT_LOGIN`, which is set while a login is verified or refused.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# -- states, in the order in which a connection goes through them ----------------------------------

AWAITING_HEADER: Final = 0
AWAITING_START_OK: Final = 1
#: A password is being verified.
VERIFYING_LOGIN: Final = 2
#: A login was refused, and the answer is delayed.
REFUSING_LOGIN: Final = 3
AWAITING_TUNE_OK: Final = 4
AWAITING_OPEN: Final = 5
OPEN: Final = 6
#: A connection.close was sent; everything but its close-ok is ignored.
CLOSING: Final = 7
#: The closing handshake is done, or the socket is lost or was abandoned.
CLOSED: Final = 8

#: The states that may follow each state.
FOLLOWING: Final = {
    AWAITING_HEADER: (AWAITING_START_OK, CLOSING, CLOSED),
    AWAITING_START_OK: (VERIFYING_LOGIN, CLOSING, CLOSED),
    VERIFYING_LOGIN: (AWAITING_TUNE_OK, REFUSING_LOGIN, CLOSING, CLOSED),
    REFUSING_LOGIN: (CLOSING, CLOSED),
    AWAITING_TUNE_OK: (AWAITING_OPEN, CLOSING, CLOSED),
    AWAITING_OPEN: (OPEN, CLOSING, CLOSED),
    OPEN: (CLOSING, CLOSED),
    CLOSING: (CLOSED,),
    CLOSED: (CLOSED,),
}

# -- why input is not parsed (bits) ----------------------------------------------------------------

#: Waiting for a sync that a reply depends on, or that makes room for more unsynced bytes.
HALT_SYNC: Final = 1
#: The peer does not read its output.
HALT_OUTPUT: Final = 2
#: An alarm is on.
HALT_ALARM: Final = 4
#: A login is being verified or refused.
HALT_LOGIN: Final = 8
#: Queues have no memory left: messages are being written to disk.
HALT_SPILL: Final = 16
#: A long operation that the client asked for is still running.
HALT_WORK: Final = 32
#: The connection has used up its slice, and waits for the scheduler.
HALT_TURN: Final = 64


def halts_in(state: i64, halted: i64) -> i64:
    """Return the halt bits of a connection that enters `state` with the bits `halted`."""
    if state == CLOSING:
        # Do not write to a peer that reads nothing.
        return halted & HALT_OUTPUT
    if state in (VERIFYING_LOGIN, REFUSING_LOGIN):
        return halted | HALT_LOGIN
    return halted & ~HALT_LOGIN
