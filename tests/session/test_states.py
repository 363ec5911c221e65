"""The table of a connection's life: which event leads from which state to which."""

from __future__ import annotations

import pytest

from leveret.session.states import (
    AWAITING_HEADER,
    CLOSE_SENT,
    CLOSED,
    CLOSING,
    ENDED,
    HALT_ALARM,
    HALT_LOGIN,
    HALT_OUTPUT,
    HALT_SYNC,
    OPEN,
    TRANSITIONS,
    VERIFYING_LOGIN,
    VHOST_ENTERED,
    halts_in,
    next_state,
)


def test_every_state_is_reached() -> None:
    reached = {AWAITING_HEADER}
    while more := {to for state in reached for to in TRANSITIONS[state].values()} - reached:
        reached |= more
    assert reached == set(TRANSITIONS)


@pytest.mark.parametrize("state", sorted(TRANSITIONS))
def test_every_state_ends(state: int) -> None:
    """A socket can be lost at any time, and what was closed stays closed."""
    assert next_state(state, ENDED) == CLOSED


@pytest.mark.parametrize("state", sorted(TRANSITIONS))
def test_a_connection_only_goes_on(state: int) -> None:
    assert all(to > state or state == CLOSED for to in TRANSITIONS[state].values())


@pytest.mark.parametrize(
    ("state", "event"),
    [(AWAITING_HEADER, VHOST_ENTERED), (OPEN, VHOST_ENTERED), (CLOSING, CLOSE_SENT)],
)
def test_an_event_that_cannot_be_is_a_fault_of_ours(state: int, event: int) -> None:
    with pytest.raises(RuntimeError, match="cannot be in state"):
        next_state(state, event)


def test_closing_waits_for_the_peer_to_read_and_for_nothing_else() -> None:
    assert halts_in(CLOSING, HALT_SYNC | HALT_OUTPUT | HALT_ALARM) == HALT_OUTPUT


def test_a_login_halts_as_long_as_it_is_verified() -> None:
    halted = halts_in(VERIFYING_LOGIN, HALT_OUTPUT)
    assert halted == HALT_OUTPUT | HALT_LOGIN
    assert halts_in(OPEN, halted) == HALT_OUTPUT
