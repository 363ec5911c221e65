"""Whatever `leveret ctl` is told is done and kept, or refused in one line and changes nothing.

The commands are found by themselves (`hostile_commands`), run in this process, and ask a broker in
memory over its real socket (`hostile_node`).
"""

from __future__ import annotations

import random
from pathlib import Path

from support.hostile.hostile_commands import cases, commands, mixed, uncovered
from support.hostile.hostile_node import Tally, run_commands
from support.hostile.hostile_values import spread

COUNT = 80


def test_every_parameter_has_a_good_value() -> None:
    assert not uncovered()


def test_commands_are_kept_or_change_nothing(tmp_path: Path) -> None:
    random_ = random.Random(3)
    groups = [[case for case in cases() if case[0] == name] for name in commands()]
    chosen = spread(random_, groups, COUNT * 3 // 4) + mixed(random_, COUNT // 4)
    tally = Tally()
    run_commands(tmp_path, tally, chosen)
    assert not tally.faults
    assert (tally.cases, tally.failures, tally.differences) == (len(chosen), 0, 0)
    assert {what.removeprefix("ctl ") for what in tally.routes} == set(commands())
