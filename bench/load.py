"""The load generator `amqpload.c`: compiled when needed, run against a port, its figures parsed.

It is written in C so that it is never what is measured.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
SOURCE: Final = HERE / "amqpload.c"
PROGRAM: Final = HERE / "amqpload"
#: Beyond the time that a run was given: to connect, to declare, to clean up.
GRACE_SECONDS: Final = 60

#: A rate over no time is printed as `-nan` or `inf`.
FIGURES: Final = re.compile(
    r"published \d+ \((?P<published>\S+)/s\) confirmed \d+ \((?P<confirmed>\S+)/s\) "
    r"delivered \d+ \((?P<delivered>\S+)/s\)"
    r"(?:.*lat_us p50 (?P<p50>\d+) p99 (?P<p99>\d+))?"
)


class LoadError(Exception):
    """The generator failed; the text is what it printed."""


@dataclass(frozen=True)
class Figures:
    """One run: messages per second, and latencies in microseconds where they were measured."""

    published: int
    confirmed: int
    delivered: int
    p50_us: int | None
    p99_us: int | None


def build() -> None:
    """Compile the generator, if its source is newer.  Raises: LoadError."""
    if PROGRAM.exists() and PROGRAM.stat().st_mtime >= SOURCE.stat().st_mtime:
        return
    done = subprocess.run(
        ["gcc", "-O2", "-w", "-o", str(PROGRAM), str(SOURCE)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LoadError(done.stderr)


def run(port: int, flags: list[str], seconds: float) -> Figures:
    """Run one load against 127.0.0.1:`port` for `seconds`.  Raises: LoadError."""
    command = [str(PROGRAM), "-p", str(port), "-t", str(seconds), *flags]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + GRACE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LoadError(f"{command} hangs") from error
    found = FIGURES.search(done.stdout)
    if done.returncode or found is None:
        raise LoadError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return Figures(
        published=rate_of(found["published"]),
        confirmed=rate_of(found["confirmed"]),
        delivered=rate_of(found["delivered"]),
        p50_us=int(found["p50"]) if found["p50"] else None,
        p99_us=int(found["p99"]) if found["p99"] else None,
    )


def rate_of(text: str) -> int:
    """Return a printed rate; 0 where nothing was counted."""
    return int(text) if text.isdigit() else 0
