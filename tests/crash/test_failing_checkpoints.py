"""A small share of `make chaos`: checkpoints that fail supersede nothing and lose nothing."""

from __future__ import annotations

import pytest
from chaos.checkpoints import FAULTS, SETTINGS, Outcome, in_memory, one, row

from support.brokers.brokers import need_own_broker


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


def test_in_memory_at_any_step() -> None:
    said: list[str] = []
    outcome = in_memory(150, 1, said.append)
    assert not said
    assert row("in memory", 150, outcome).holds
    assert outcome.confirmed > 150


@pytest.mark.parametrize("number", [5, 8, 9, 10])
def test_of_a_real_broker(number: int) -> None:
    words, (_, last), code = FAULTS[number]
    outcome = Outcome()
    fault = (words[0], max(1, last // 3), *words[1:])
    assert one(fault, code, SETTINGS[number % 2], outcome) == []
    assert row("a process", 1, outcome).holds
    assert outcome.confirmed > 0
