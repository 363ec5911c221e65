"""Hostile requests, methods and commands against a broker process that is killed behind them.

A sample of what `make chaos --only hostile` tries, with a fixed seed.
"""

from __future__ import annotations

import random
from pathlib import Path

from support.hostile.hostile_node import Tally
from support.hostile.hostile_process import run_process, sample

COUNT = 300


def test_a_broker_keeps_what_it_took_and_nothing_else(tmp_path: Path) -> None:
    chosen = sample(random.Random(4), COUNT)
    tally = Tally()
    run_process(tmp_path, tally, chosen)
    assert not tally.faults
    assert (tally.cases, tally.failures, tally.differences) == (len(chosen), 0, 0)
    assert tally.checkpoints > 0, "its journal was large enough for one"
