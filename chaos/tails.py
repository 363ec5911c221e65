"""The last journal file and the last segment file cut at every byte (scoreboard R5).

A cut journal keeps every record before the cut and loses the rest; a cut segment keeps every chunk
before it, and those that the older journal can still tell.  Both boot, and say what is missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Final

from chaos.board import Row
from chaos.harm import CUT, Harm
from chaos.harmed import scratch, try_all
from chaos.specimen import Specimen, made

NAME: Final = "tails"

#: How much of a file's end is cut, byte by byte.
TAIL_BYTES: Final = 65_536

#: Every place of both files.
RUNS: Final = 2 * TAIL_BYTES


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Boot a directory with each of its two tails cut at so many places in all."""
    base = scratch()
    try:
        with made(base, seed) as specimen:
            rows = []
            for folder in ("journal", "segments"):
                harms = cuts(specimen, folder, max(1, runs // 2))
                say(f"{len(harms):,} cuts of {harms[0].path}")
                rows.append(try_all(specimen, harms, say).row(f"{NAME}: {folder}", specimen))
            return rows
    finally:
        shutil.rmtree(base, ignore_errors=True)


def cuts(specimen: Specimen, folder: str, count: int) -> list[Harm]:
    """Return cuts of the newest file in a folder: all places of its tail, or so many of them."""
    path = max(path for path in (specimen.directory / folder).iterdir() if path.stat().st_size)
    # Behind the last group of a journal there may be zeros, and a cut there loses nothing.
    size = len(path.read_bytes().rstrip(b"\0"))
    tail = min(size, TAIL_BYTES)
    step = max(1, tail // count)
    name = path.relative_to(specimen.directory).as_posix()
    return [Harm(CUT, name, at) for at in range(size - tail, size, step)]
