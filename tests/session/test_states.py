"""The table of a connection's life: which state leads to which."""

from __future__ import annotations

import pytest

from leveret.session.states import (
    AWAITING_HEADER,
    CLOSED,
    CLOSING,
    FOLLOWING,
    HALT_ALARM,
    HALT_LOGIN,
    HALT_OUTPUT,
    HALT_SYNC,
    OPEN,
    VERIFYING_LOGIN,
    halts_in,
)
from support.node.core import Node


def test_every_state_is_reached() -> None:
    reached = {AWAITING_HEADER}
    while more := {to for state in reached for to in FOLLOWING[state]} - reached:
        reached |= more
    assert reached == set(FOLLOWING)


@pytest.mark.parametrize("state", sorted(FOLLOWING))
def test_every_state_ends(state: int) -> None:
    """A socket can be lost at any time, and what was closed stays closed."""
    assert CLOSED in FOLLOWING[state]


@pytest.mark.parametrize("state", sorted(FOLLOWING))
def test_a_connection_only_goes_on(state: int) -> None:
    assert all(to > state or state == CLOSED for to in FOLLOWING[state])


@pytest.mark.parametrize("state", [AWAITING_HEADER, OPEN, VERIFYING_LOGIN])
def test_a_state_that_cannot_follow_is_a_fault_of_ours(state: int) -> None:
    connection = Node().connect().connection
    with pytest.raises(RuntimeError, match="cannot follow 6"):
        connection.advance(state)
    assert connection.state == OPEN


def test_closing_waits_for_the_peer_to_read_and_for_nothing_else() -> None:
    assert halts_in(CLOSING, HALT_SYNC | HALT_OUTPUT | HALT_ALARM) == HALT_OUTPUT


def test_a_login_halts_as_long_as_it_is_verified() -> None:
    halted = halts_in(VERIFYING_LOGIN, HALT_OUTPUT)
    assert halted == HALT_OUTPUT | HALT_LOGIN
    assert halts_in(OPEN, halted) == HALT_OUTPUT
