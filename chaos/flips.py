"""One bit turned anywhere in a data directory: it is found, or does not matter (scoreboard R6)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from typing import Final

from chaos.board import Row
from chaos.harm import FLIP, Harm
from chaos.harmed import scratch, try_all
from chaos.specimen import Specimen, made

NAME: Final = "flips"
RUNS: Final = 10_000

#: The zeros at the end of a file that count: a page.
ZEROS: Final = 4096


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Boot so many copies of a directory, each with one bit turned by chance."""
    base = scratch()
    try:
        with made(base, seed) as specimen:
            harms = flips(specimen, random.Random(seed), runs)
            return [try_all(specimen, harms, say).row(NAME, specimen)]
    finally:
        shutil.rmtree(base, ignore_errors=True)


def flips(specimen: Specimen, chance: random.Random, count: int) -> list[Harm]:
    """Return so many flips, each bit of the directory with the same chance.

    Of the zeros at the end of a journal file, which are room for more, only the first count.
    """
    sizes = {
        path.relative_to(specimen.directory).as_posix(): min(
            path.stat().st_size, len(path.read_bytes().rstrip(b"\0")) + ZEROS
        )
        for path in sorted(specimen.directory.rglob("*"))
        if path.is_file()
    }
    chosen = chance.choices(list(sizes), list(sizes.values()), k=count)
    return [Harm(FLIP, path, chance.randrange(sizes[path]), chance.randrange(8)) for path in chosen]
