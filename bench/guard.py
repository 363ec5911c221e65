"""Instructions of the broker's core for a message, against the figures of this machine's kind.

    .venv/bin/python bench/guard.py [--only confirms] [--renew]

Callgrind counts the loads of `core_load.py`, to the same number in each run: no socket, no clock
and no other process takes part.  The figures in `instructions.json` belong to a compiler, a Python
and a C library; without figures for those that are here, the counts are only printed.  A count that
is more than 3 % above its figure ends the program with 1.  `--renew` writes the counts as figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import core_load
from instructions import CountError, parse_callgrind

BENCH: Final = Path(__file__).resolve().parent
FIGURES: Final = BENCH / "instructions.json"

#: How much a count may exceed its figure.
ALLOWED: Final = 1.03

SECONDS_MAX: Final = 600.0


def kind_of_machine() -> str:
    """Return the compiler, Python, C library and processor, on which a count depends."""
    compiler = subprocess.run(
        [os.environ.get("CC", "cc"), "-dumpfullversion"],
        capture_output=True,
        text=True,
        check=False,
    )
    return ", ".join(
        (
            f"cc {compiler.stdout.strip()}",
            f"{platform.python_implementation()} {platform.python_version()}",
            " ".join(platform.libc_ver()),
            platform.machine(),
        )
    )


def counted(load: str, python: str = sys.executable) -> float:
    """Return the instructions per message of a load.  Raises: CountError."""
    if shutil.which("valgrind") is None:
        raise CountError("there is no valgrind")
    with tempfile.TemporaryDirectory(prefix="bench-guard-") as directory:
        dump = Path(directory) / "dump"
        command = [
            *("valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={dump}"),
            *("--zero-before=getppid", "--dump-before=getpgrp"),
            *(python, core_load.__file__, load),
        ]
        # Hashes, and so the order of sets, are those of every run.
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
        )
        if done.returncode != 0:
            raise CountError(f"the load failed under callgrind: {done.stderr}")
        # The first dump is of what counts; the one without a number is written at the end.
        return parse_callgrind(Path(f"{dump}.1").read_text()) / core_load.MESSAGES


def judged(load: str, count: float, figure: float | None, kind: str) -> str | None:
    """Return the error for a count that is too high, or None."""
    if figure is None or count <= ALLOWED * figure:
        return None
    return (
        f"{load}: {count:,.1f} instructions per message, {100 * (count / figure - 1):.1f} % more "
        f"than the {figure:,.1f} stored for {kind}. Find what they are for (bench/README.md), or "
        "store the new figure with its reason: bench/guard.py --renew"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Count the loads, and compare them with the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=core_load.LOADS, action="append")
    parser.add_argument("--renew", action="store_true")
    given = parser.parse_args(arguments)
    kind = kind_of_machine()
    figures = json.loads(FIGURES.read_text())
    known = figures.get(kind, {})
    errors = []
    for load in given.only or core_load.LOADS:
        count = counted(load)
        figure = known.get(load)
        ratio = "no figure" if figure is None else f"{count / figure:.3f} of {figure:,.1f}"
        print(f"{load}: {count:,.1f} instructions per message, {ratio} ({kind})")
        error = judged(load, count, figure, kind)
        if error is not None:
            errors.append(error)
        if given.renew:
            figures.setdefault(kind, {})[load] = round(count, 1)
    if given.renew:
        FIGURES.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
        return 0
    print(*errors, sep="\n", end="\n" if errors else "", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
