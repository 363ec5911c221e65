"""A connection that waits to be accepted: how long it did, and what that takes from its opening."""

from __future__ import annotations

import asyncio
import socket
import time

from leveret.server.acceptor import Acceptor, waited_ms
from leveret.session.admission import Admission, Slot


class _Silent(asyncio.Protocol):
    """The protocol of a connection; the test looks at its slot."""


def test_what_waits_in_the_backlog_has_begun_to_open() -> None:
    async def run() -> Slot:
        listening = socket.create_server(("127.0.0.1", 0))
        with socket.create_connection(listening.getsockname()):
            before = time.monotonic()
            while time.monotonic() - before < 0.05:
                pass
            made = asyncio.get_running_loop().create_future()

            def make(network: str) -> tuple[asyncio.Protocol, Slot]:
                slot = Slot(network, lambda: None)
                made.set_result(slot)
                return _Silent(), slot

            acceptor = Acceptor(listening, Admission(10), make, lambda *_: None)
            slot: Slot = await made
            acceptor.close()
            return slot

    slot = asyncio.run(run())
    # The kernel counts in its own ticks of up to 10 ms.
    assert slot.waited_ms >= 40
    waited = slot.waited_ms / 1000
    assert slot.opening_seconds(600) == 600 * 0.95 - waited
    # The next step of the opening did not wait.
    assert slot.opening_seconds(600) == 600 * 0.95


def test_half_of_the_time_is_left_to_who_waited_long() -> None:
    slot = Slot("10.0.0.1", lambda: None)
    slot.waited_ms = 4499
    assert round(slot.opening_seconds(10), 3) == 5.001
    for waited in (4500, 60_000):
        slot.waited_ms = waited
        assert slot.opening_seconds(10) == 5


def test_a_socket_that_has_no_such_count_waited_for_no_time() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert waited_ms(ours) == 0
