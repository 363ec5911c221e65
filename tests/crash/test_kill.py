"""A broker process that is killed with SIGKILL again and again loses nothing that it promised.

Invariants I1 to I6 and I9, judged by `kill_scenario`.  60 kills: 6 seeds with 10 each, four of them
with a journal so short that checkpoints run all the time, one of those with deep queues.  Half of
them, one seed of each kind, are in `make check`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.crash.kill_book import KEPT
from support.crash.kill_scenario import DEEP, SHORT, Scenario
from support.crash.ledger import Ledger

KILLS = 10

#: One of each kind; the others are as many again.
RUNS = [(1, {}), (2, SHORT), (6, DEEP)]
MORE = [
    pytest.param(seed, settings, marks=pytest.mark.thorough, id=f"seed{seed}")
    for seed, settings in ((3, {}), (4, SHORT), (5, SHORT))
]


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


@pytest.mark.parametrize(
    ("seed", "settings"),
    [*(pytest.param(seed, settings, id=f"seed{seed}") for seed, settings in RUNS), *MORE],
)
def test_kills(tmp_path: Path, seed: int, settings: dict[str, str]) -> None:
    with (
        Ledger(tmp_path / "ledger") as ledger,
        BrokerProcess(tmp_path / "data", settings=settings) as broker,
    ):
        scenario = Scenario(seed, broker, ledger)
        scenario.define()
        for number in range(KILLS):
            scenario.load(scenario.random.randrange(1, 150))
            broker.start()
            if number % 4 == 3:
                # A second crash before anybody has looked (invariant I9).
                broker.crash()
            scenario.verify(crashed=True)
        broker.restart()
        scenario.verify(crashed=False)
        assert broker.terminate() == 0
        assert not settings or scenario.checkpoints >= KILLS // 2
        assert scenario.book.confirms > 20 * KILLS
        assert any(KEPT in one.places.values() for one in scenario.book.sent.values())
