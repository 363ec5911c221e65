"""Peers that send a byte each second are cut off within the time that they may take to open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from leveret.app.embedded import EmbeddedParts, embedded_settings
from leveret.app.node import RunningBroker
from leveret.client.asynchronous import connect
from leveret.clock import Clock
from support.brokers.secure import Pki, client_hello
from support.node.virtual_loop import LoopClock, dribble, lapse, run

SECONDS = 10

#: The header of AMQP, and the frame of a method that never ends.
AMQP = b"AMQP\0\0\x09\1\1\0\0\0\0\x0f\xff" + bytes(1000)


class _Parts(EmbeddedParts):
    """The parts of a broker in memory, whose time is that of its loop."""

    def clock(self) -> Clock:
        return LoopClock()


async def _serving(pki: Pki, work: Callable[[RunningBroker], Awaitable[None]]) -> None:
    """Work with a broker that serves."""
    settings = embedded_settings({**pki.settings, "handshake_seconds": SECONDS})
    node = RunningBroker(settings, _Parts(settings, in_memory=True))
    await node.start()
    try:
        await work(node)
    finally:
        await node.kill()


@pytest.mark.parametrize("protocol", ["amqp", "tls"])
def test_who_dribbles_is_cut_off_within_the_limit(pki: Pki, protocol: str) -> None:
    hello = client_hello(pki.trusting())

    async def work(node: RunningBroker) -> None:
        port = node.port if protocol == "amqp" else node.listeners.tls_port
        said = AMQP if protocol == "amqp" else hello
        # Not all at once: a look at the clock once a second would be late for some of them.
        peers = []
        for _ in range(7):
            peers.append(asyncio.ensure_future(dribble(port, said)))
            await lapse(0.15)
        cut = await asyncio.gather(*peers)
        # Before the limit, so that its peer sees it in time.
        assert max(cut) < 0.96 * SECONDS
        assert min(cut) > 0.9 * SECONDS

    run(_serving(pki, work))


def test_who_has_logged_in_stays(pki: Pki) -> None:
    """Longer than the limit, and a session that is gone by then is not looked at."""

    async def work(node: RunningBroker) -> None:
        port = node.port
        gone = await connect(f"amqp://guest:guest@127.0.0.1:{port}")
        await gone.close()
        async with await connect(f"amqp://guest:guest@127.0.0.1:{port}") as connection:
            await lapse(3 * SECONDS)
            channel = await connection.channel()
            await channel.queue_declare("here")

    run(_serving(pki, work))
