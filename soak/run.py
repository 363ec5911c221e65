"""Run the scenarios one after the other and print the table; exit 1 if a promise was broken.

`--share 0.1` scales the numbers of kills and batches for a try; `--only` takes the names of
scenarios.  The seed is printed, and given back by `--seed` it makes the same choices again (not the
same timing).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from soak import board, brokers, destinations, drivers, executors, queues, whole
from soak.world import SoakError
from support.commands.scenarios import arguments


class Scenario(Protocol):
    """What a module of a scenario offers."""

    NAME: str
    RUNS: int

    def run(self, runs: int, seed: int, say: Callable[[str], None]) -> Iterator[board.Row]:
        """Run it so many times and yield what came of each part.  Raises: SoakError."""


SCENARIOS: Final[Sequence[Scenario]] = (drivers, executors, brokers, queues, destinations, whole)


def main() -> int:
    """Run what was asked for."""
    names = [scenario.NAME for scenario in SCENARIOS]
    given = arguments("soak", __doc__, names)
    print(f"soak: seed {given.seed}, share {given.share:g}", file=sys.stderr)
    rows: list[board.Row] = []
    for scenario in SCENARIOS:
        if scenario.NAME not in given.only:
            continue
        runs = max(1, math.ceil(scenario.RUNS * given.share))
        begun = time.monotonic()

        def say(text: str, name: str = scenario.NAME, begun: float = begun) -> None:
            print(f"{name} {time.monotonic() - begun:6.0f} s: {text}", file=sys.stderr, flush=True)

        say(f"{runs:,} runs")
        try:
            for row in scenario.run(runs, given.seed, say):
                say(board.line(row))
                rows.append(row)
        except SoakError as error:
            say(str(error))
            rows.append(board.failed(scenario.NAME, str(error).splitlines()[0]))
        say("done")
    print(board.table(rows))
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
