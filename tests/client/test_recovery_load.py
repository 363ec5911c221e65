"""Recovery under load: nothing that was confirmed is lost, and Leveret stores nothing twice."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.crash.recovery_load import Load, bad_network
from support.wire.cut_proxy import CutProxy

SECONDS = 300.0


def test_a_bad_network_costs_no_confirmed_message(broker_uri: str, name: str) -> None:
    load = Load(name)

    async def test() -> None:
        with CutProxy(urlsplit(broker_uri).port or 0) as proxy:
            async with asyncio.timeout(SECONDS):
                await load.run(proxy, 3, 20, partial(bad_network, proxy))

    asyncio.run(test())
    assert len(load.confirmed) >= 2000
    assert (load.lost, load.doubled, load.problems) == (set(), [], [])


@pytest.mark.one_build
def test_a_killed_broker_costs_no_confirmed_message(tmp_path: Path, name: str) -> None:
    need_own_broker()
    load = Load(name)

    async def test() -> None:
        with BrokerProcess(tmp_path / "data") as broker, CutProxy(broker.port) as proxy:

            async def kill(number: int) -> None:
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
                proxy.lead_to(broker.port)

            async with asyncio.timeout(SECONDS):
                await load.run(proxy, 5, 3, kill)

    asyncio.run(test())
    assert (load.lost, load.doubled, load.problems) == (set(), [], [])
