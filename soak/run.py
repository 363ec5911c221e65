"""Run the scenarios one after the other and print the table; exit 1 if a promise was broken.

`--share 0.1` scales the numbers of kills for a try; `--only` takes the names of scenarios.  The
seed is printed, and given back by `--seed` it makes the same choices again (not the same timing).
"""

from __future__ import annotations

import argparse
import math
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from soak import board, brokers, drivers, executors, queues
from soak.world import SoakError


class Scenario(Protocol):
    """What a module of a scenario offers."""

    NAME: str
    RUNS: int

    def run(self, runs: int, seed: int, say: Callable[[str], None]) -> Iterator[board.Row]:
        """Run it with so many kills and yield what came of each part.  Raises: SoakError."""


SCENARIOS: Final[Sequence[Scenario]] = (drivers, executors, brokers, queues)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    names = [scenario.NAME for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(prog="soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="NAMES", help=f"of {', '.join(names)}; with commas")
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    given.only = given.only.split(",") if given.only else names
    if unknown := set(given.only) - set(names):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if given.share <= 0:
        parser.error("--share is more than 0")
    if given.seed is None:
        given.seed = secrets.randbelow(1 << 32)
    return given


def main() -> int:
    """Run what was asked for."""
    given = arguments()
    print(f"soak: seed {given.seed}, share {given.share:g}", file=sys.stderr)
    rows: list[board.Row] = []
    for scenario in SCENARIOS:
        if scenario.NAME not in given.only:
            continue
        runs = max(1, math.ceil(scenario.RUNS * given.share))
        begun = time.monotonic()

        def say(text: str, name: str = scenario.NAME, begun: float = begun) -> None:
            print(f"{name} {time.monotonic() - begun:6.0f} s: {text}", file=sys.stderr, flush=True)

        say(f"{runs:,} kills")
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
