"""One file of a data directory is gone: the broker starts without it, or says why it will not (R5).

Only `format` is refused, because a directory with contents and without it may be anybody's; then no
byte of it changes.  All other files cost what was in them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos.board import Row
from chaos.harm import MISSING, Harm
from chaos.harmed import scratch, try_all
from chaos.specimen import Specimen, copied, made
from support.brokers.broker_process import BrokerProcess, BrokerProcessError

NAME: Final = "missing"

#: Directories; each of their files is taken away once.
RUNS: Final = 3

#: What is refused without it.
FORMAT: Final = "format"


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Boot directories without each of their files in turn."""
    rows = []
    for number in range(runs):
        base = scratch()
        try:
            with made(base, seed + number) as specimen:
                rows.append(_each_file(specimen, say))
                rows.append(_without_format(specimen))
        finally:
            shutil.rmtree(base, ignore_errors=True)
    return rows


def _each_file(specimen: Specimen, say: Callable[[str], None]) -> Row:
    files = [path for path in sorted(specimen.directory.rglob("*")) if path.is_file()]
    names = [path.relative_to(specimen.directory).as_posix() for path in files]
    harms = [Harm(MISSING, name) for name in names if name != FORMAT]
    return try_all(specimen, harms, say).row(f"{NAME}: any file", specimen)


def _without_format(specimen: Specimen) -> Row:
    """The row of a directory without its format file: a refusal is what should come."""
    with copied(specimen, specimen.directory.with_name("copy")) as directory:
        Harm(MISSING, FORMAT).do(directory)
        before = contents(directory)
        refused = refusal(directory)
        wrong = int("the format file is missing" not in refused)
        wrong += int(contents(directory) != before)
    return Row(
        f"{NAME}: format", 1, 1, specimen.confirmed, 0, 0, 0, wrong, note="refused, untouched"
    )


def refusal(directory: Path) -> str:
    """Return what a broker says that will not start on a directory; nothing if it starts."""
    broker = BrokerProcess(directory)
    try:
        broker.start()
    except BrokerProcessError as error:
        return str(error)
    broker.kill()
    return ""


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and bytes of every file, and the names of the folders, by path."""
    return {
        path.relative_to(directory).as_posix(): (
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(directory.rglob("*"))
        if not path.is_socket()
    }
