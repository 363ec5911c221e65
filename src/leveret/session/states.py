"""The life of a connection: its states, what leads from one to the next, and why input waits.

A connection parses its input unless it is *halted*.  The reasons to halt are bits of
`ConnectionBase.halted`; several may hold at once, and input is parsed again when none is left.
While a login is verified or refused, its state is the reason.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# -- states, in the order in which a connection goes through them ----------------------------------

AWAITING_HEADER: Final = 0
AWAITING_START_OK: Final = 1
#: A password is being verified.
VERIFYING_LOGIN: Final = 2
#: A login was refused, and the answer is held back for a while.
REFUSING_LOGIN: Final = 3
AWAITING_TUNE_OK: Final = 4
AWAITING_OPEN: Final = 5
OPEN: Final = 6
#: A connection.close was sent; only its close-ok counts.
CLOSING: Final = 7
CLOSED: Final = 8

# -- what happens to it ----------------------------------------------------------------------------

HEADER_TAKEN: Final = 0
START_OK_TAKEN: Final = 1
LOGIN_ACCEPTED: Final = 2
LOGIN_REFUSED: Final = 3
TUNE_OK_TAKEN: Final = 4
VHOST_ENTERED: Final = 5
CLOSE_SENT: Final = 6
#: The closing handshake is done, or the socket is gone or given up.
ENDED: Final = 7

#: The state that each event leads to, by the state that it meets.
TRANSITIONS: Final = {
    AWAITING_HEADER: {
        HEADER_TAKEN: AWAITING_START_OK,
        CLOSE_SENT: CLOSING,
        ENDED: CLOSED,
    },
    AWAITING_START_OK: {
        START_OK_TAKEN: VERIFYING_LOGIN,
        CLOSE_SENT: CLOSING,
        ENDED: CLOSED,
    },
    VERIFYING_LOGIN: {
        LOGIN_ACCEPTED: AWAITING_TUNE_OK,
        LOGIN_REFUSED: REFUSING_LOGIN,
        CLOSE_SENT: CLOSING,
        ENDED: CLOSED,
    },
    REFUSING_LOGIN: {
        CLOSE_SENT: CLOSING,
        ENDED: CLOSED,
    },
    AWAITING_TUNE_OK: {
        TUNE_OK_TAKEN: AWAITING_OPEN,
        CLOSE_SENT: CLOSING,
        ENDED: CLOSED,
    },
    AWAITING_OPEN: {
        VHOST_ENTERED: OPEN,
        CLOSE_SENT: CLOSING,
        ENDED: CLOSED,
    },
    OPEN: {
        CLOSE_SENT: CLOSING,
        ENDED: CLOSED,
    },
    CLOSING: {ENDED: CLOSED},
    CLOSED: {ENDED: CLOSED},
}

# -- why input is not parsed (bits) ----------------------------------------------------------------

#: A sync that a reply depends on, or that makes room for more unsynced bytes.
HALT_SYNC: Final = 1
#: The peer does not read its output.
HALT_OUTPUT: Final = 2
#: An alarm is on.
HALT_ALARM: Final = 4
#: A login is verified or refused.
HALT_LOGIN: Final = 8
#: The disk has to take what queues have no memory for.
HALT_SPILL: Final = 16
#: A long operation that the client asked for is not at its end.
HALT_WORK: Final = 32
#: The connection has used up its share of this round: others come first.
HALT_TURN: Final = 64

#: The states in which a connection is halted for their own reason.
_HALTING: Final = {VERIFYING_LOGIN: HALT_LOGIN, REFUSING_LOGIN: HALT_LOGIN}

#: What still counts once a close was sent: a peer that reads nothing is not written to.
_HALTS_WHILE_CLOSING: Final = HALT_OUTPUT


def next_state(state: i64, event: int) -> int:
    """Return the state that `event` leads to.

    Raises: RuntimeError for an event that cannot be in `state`.
    """
    following = TRANSITIONS[int(state)].get(event)
    if following is None:
        raise RuntimeError(f"event {event} cannot be in state {int(state)} of a connection")
    return following


def halts_in(state: int, halted: i64) -> i64:
    """Return why a connection is halted that was halted for `halted` and comes to `state`."""
    if state == CLOSING:
        return halted & _HALTS_WHILE_CLOSING
    if state == CLOSED:
        return halted & ~HALT_LOGIN
    return halted & ~HALT_LOGIN | _HALTING.get(state, 0)
