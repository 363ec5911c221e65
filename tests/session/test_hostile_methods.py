"""Whatever a client sends over AMQP is done and kept, or refused and changes nothing.

The methods are made from the one table of methods (`hostile_methods`) and go to a broker in memory
(`hostile_node`), which is restarted after each batch.  `make chaos` sends many more, and to a
broker process too.
"""

from __future__ import annotations

import random
from pathlib import Path

from support.hostile.hostile_methods import argument_names, cases, client_methods, mixed
from support.hostile.hostile_node import Tally, run_methods
from support.hostile.hostile_values import ARGUMENTS, spread

COUNT = 700
BATCH = 200


def test_the_arguments_of_the_source_are_found() -> None:
    names = argument_names()
    assert {"x-message-ttl", "x-stream-consumer", "x-super-stream-partitions"} <= set(names)
    assert len(names) > len(ARGUMENTS)


def test_methods_are_kept_or_change_nothing(tmp_path: Path) -> None:
    random_ = random.Random(2)
    chosen = spread(random_, cases().values(), COUNT * 3 // 4) + mixed(random_, COUNT // 4)
    random_.shuffle(chosen)
    tally = Tally()
    for start in range(0, len(chosen), BATCH):
        batch = [(name, make()) for name, make in chosen[start : start + BATCH]]
        run_methods(tmp_path, tally, batch)
    assert not tally.faults
    assert (tally.cases, tally.failures, tally.differences) == (len(chosen), 0, 0)
    assert set(tally.routes) == {spec.full_name for spec in client_methods()}
    assert min(tally.taken, tally.refused) > len(chosen) // 8, "both happen"
