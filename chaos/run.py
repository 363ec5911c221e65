"""Run the scenarios one after the other and print the scoreboard; exit 1 if a promise was broken.

`--share 0.01` scales all counts for a try; `--only` takes the names of scenarios.  The seed is
printed, and given back by `--seed` it makes the same choices again (not the same timing).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from chaos import (
    address_space,
    board,
    checkpoints,
    churn,
    clocks,
    costs,
    cuts,
    eio,
    enospc,
    flips,
    hostile,
    kills,
    missing,
    mixed,
    model,
    mutations,
    network,
    rabbit,
    readers,
    recovery,
    refusals,
    replay,
    slowdisk,
    syscalls,
    tails,
)
from support.commands.scenarios import arguments


class Scenario(Protocol):
    """What a module of a scenario offers."""

    NAME: str
    RUNS: int

    def run(self, runs: int, seed: int, say: Callable[[str], None]) -> list[board.Row]:
        """Run it so many times."""


SCENARIOS: Final[Sequence[Scenario]] = (
    kills, mixed, model, rabbit, cuts, syscalls, eio, checkpoints, enospc, slowdisk,
    tails, missing, flips, readers, refusals, replay, hostile, mutations, costs, address_space,
    network, recovery, clocks, churn,
)  # fmt: skip


def runs_of(scenario: Scenario, share: float) -> int:
    """Return how many times a scenario runs for a share of its full count: at least once."""
    return max(1, math.ceil(scenario.RUNS * share))


def main() -> int:
    """Run what was asked for."""
    names = [scenario.NAME for scenario in SCENARIOS]
    given = arguments("chaos", __doc__, names)
    print(f"chaos: seed {given.seed}, share {given.share:g}", file=sys.stderr)
    rows: list[board.Row] = []
    for scenario in SCENARIOS:
        if scenario.NAME not in given.only:
            continue
        runs = runs_of(scenario, given.share)
        begun = time.monotonic()

        def say(text: str, name: str = scenario.NAME, begun: float = begun) -> None:
            print(f"{name} {time.monotonic() - begun:6.0f} s: {text}", file=sys.stderr, flush=True)

        say(f"{runs:,} runs")
        rows += scenario.run(runs, given.seed, say)
        say("done")
    print(board.table(rows))
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
