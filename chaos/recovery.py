"""Our own client through a bad network and over killed brokers: it must go on by itself.

Publishers with confirms and consumers with acks have a connection each (`recovery_load`).
All of them are cut, reset or stalled at once, or the broker is killed and started again; the next
fault comes when all of them have recovered under load.  On Leveret nothing that was confirmed is
lost and nothing is stored twice; on RabbitMQ nothing is lost.  Topology and consumers are as
before.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from rabbitmq import RabbitMQ, installed

from chaos.board import Row, skipped
from support.brokers.broker_process import BrokerProcess
from support.crash.recovery_load import Load, bad_network
from support.wire.cut_proxy import CutProxy

NAME: Final = "recovery"

#: Faults of the network.
RUNS: Final = 500

CLIENTS: Final = 4
#: Publishers, and as many consumers, when the broker is killed.
KILL_CLIENTS: Final = 20
#: One in so many runs is also a kill.
KILL_EVERY: Final = 25
#: What one fault may take on a busy machine, in seconds.
SECONDS_MAX: Final = 60.0


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Break the network so many times before each broker, and kill Leveret now and then."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        with BrokerProcess(Path(folder) / "network") as broker, CutProxy(broker.port) as proxy:
            rows.append(
                tried("recovery: bad network", runs, CLIENTS, proxy, network(proxy, seed), say)
            )
        kills = max(1, runs // KILL_EVERY)
        with BrokerProcess(Path(folder) / "kills") as broker, CutProxy(broker.port) as proxy:
            fault = partial(kill, broker, proxy)
            rows.append(tried("recovery: kill -9", kills, KILL_CLIENTS, proxy, fault, say))
    if not installed():
        return [*rows, skipped("RabbitMQ: recovery", "rabbitmq-server is not installed")]
    with RabbitMQ() as rabbit, CutProxy(rabbit.port) as proxy:
        name = f"RabbitMQ {rabbit.version}: recovery, bad network"
        rows.append(tried(name, runs, CLIENTS, proxy, network(proxy, seed), say, is_leveret=False))
    return rows


def network(proxy: CutProxy, seed: int) -> Callable[[int], Awaitable[None]]:
    """Return the faults of a network, in turn from one that the seed chooses."""
    return lambda number: bad_network(proxy, number + seed)


async def kill(broker: BrokerProcess, proxy: CutProxy, _number: int) -> None:
    """Kill the broker and start it again, on another port."""
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)
    proxy.lead_to(broker.port)


def tried(
    name: str,
    faults: int,
    clients: int,
    proxy: CutProxy,
    fault: Callable[[int], Awaitable[None]],
    say: Callable[[str], None],
    *,
    is_leveret: bool = True,
) -> Row:
    """Return what came of a load through so many faults."""
    load = Load("recovery", numbered=is_leveret)

    async def test() -> None:
        async with asyncio.timeout(faults * SECONDS_MAX):
            await load.run(proxy, clients, faults, fault)

    try:
        asyncio.run(test())
    except Exception as error:  # noqa: BLE001 -- a fault of the client is a row, not an end
        load.problems.append(repr(error))
    for problem in load.problems:
        say(f"{name}: {problem}")
    doubled = len(load.doubled)
    return Row(
        name, faults, faults, len(load.confirmed), len(load.lost), 0, 0,
        len(load.problems) + (doubled if is_leveret else 0),
        note=f"{doubled:,} stored twice, {sum(load.recovered.values()):,} recoveries",
    )  # fmt: skip
