"""Our own client recovers on Debian's RabbitMQ: nothing that was confirmed is lost."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from rabbitmq import RabbitMQ, installed

from support.crash.recovery_load import Load, bad_network
from support.wire.cut_proxy import CutProxy

FAULTS = 20
SECONDS = 300.0


@pytest.mark.thorough
def test_a_bad_network_costs_no_confirmed_message(name: str) -> None:
    if not installed():
        pytest.skip("rabbitmq-server is not installed")
    load = Load(name, numbered=True)

    async def test() -> None:
        with RabbitMQ() as rabbit, CutProxy(rabbit.port) as proxy:
            async with asyncio.timeout(SECONDS):
                await load.run(proxy, 3, FAULTS, partial(bad_network, proxy))

    asyncio.run(test())
    assert len(load.confirmed) >= FAULTS * 100
    assert (load.lost, load.problems) == (set(), [])
