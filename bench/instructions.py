"""Instructions that a broker executes for a message: a figure that a busy machine does not change.

The load generator sends n messages that warm up, then by turns n and 3n.  Per message it is the
difference of two such loads by 2n, so that connecting and declaring do not count, nor does anything
outside of the broker's process.  It varies by a per cent or two with how messages gather in reads
and syncs, so there are several pairs of loads.

The processor counts, by `perf stat`, where it is allowed to; else the broker runs under callgrind,
which counts itself, some fifty times as slow.  Both count all threads in user mode.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import sides

PERF_EVENT: Final = "instructions:u"

#: How many pairs of loads are counted.
PAIRS: Final = 5

#: How a dump of callgrind tells its sum.
_SUMMARY: Final = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)

#: How long callgrind may take to write one.
CONTROL_SECONDS_MAX: Final = 120.0

#: How long the generator may take for a message under callgrind, and for the rest of a run.
SECONDS_PER_MESSAGE: Final = 0.01
SECONDS_PER_RUN: Final = 120.0


class CountError(Exception):
    """Nothing could be counted; the text says why."""


def parse_perf(output: str) -> int | None:
    """Return the count in what `perf stat -x,` printed; None where it could not count."""
    for line in output.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2].startswith("instructions"):
            return int(fields[0]) if fields[0].isdecimal() else None
    return None


def parse_callgrind(dump: str) -> int:
    """Return the count in a dump of callgrind.  Raises: CountError."""
    found = _SUMMARY.search(dump)
    if found is None:
        raise CountError("callgrind's dump has no sum")
    return int(found[1])


def per_message(fewer: int, more: int, messages: int) -> float:
    """Return instructions per message, of runs with so many messages and three times as many."""
    return (more - fewer) / (2 * messages)


def has_counters() -> bool:
    """Tell whether `perf` counts instructions on this machine."""
    if shutil.which("perf") is None:
        return False
    command = ["perf", "stat", "-x,", "-e", PERF_EVENT, "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return parse_perf(done.stderr) is not None


def method() -> str:
    """Return how instructions are counted here: `perf` or `callgrind`.  Raises: CountError."""
    if has_counters():
        return "perf"
    if shutil.which("valgrind") and shutil.which("callgrind_control"):
        return "callgrind"
    raise CountError("neither does perf count instructions here, nor is there a valgrind")


def count(
    python: str, flags: Sequence[str], messages: int, directory: Path, how: str
) -> list[float]:
    """Return the instructions per message of a load on the Leveret that a Python has installed.

    There is a figure for each pair of loads, of `messages` and of three times as many.

    Raises: CountError; sides.GeneratorError; BrokerProcessError.
    """
    with contextlib.ExitStack() as stack:
        dumps = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-count-")))
        side = stack.enter_context(_broker(python, directory, dumps, how))
        runs: list[int] = []
        for times in (1, *(1, 3) * PAIRS):
            load = [*flags, "-n", str(times * messages)]
            measure = _by_perf if how == "perf" else _by_callgrind
            runs.append(measure(side, load, times * messages, dumps))
        pairs = zip(runs[1::2], runs[2::2], strict=True)
        return [per_message(fewer, more, messages) for fewer, more in pairs]


@contextlib.contextmanager
def _broker(python: str, directory: Path, dumps: Path, how: str) -> Iterator[sides.Side]:
    """Run a broker that can be counted; hashes are those of every run."""
    wrapper = ["env", "PYTHONHASHSEED=0"]
    if how == "callgrind":
        file = f"--callgrind-out-file={dumps / 'dump'}"
        wrapper += ["valgrind", "--quiet", "--tool=callgrind", file]
    every, _ = sides.cores("all")
    with sides.leveret(python, how, directory, every, wrapper) as side:
        yield side


def _generate(
    side: sides.Side, load: Sequence[str], messages: int, wrapper: Sequence[str] = ()
) -> None:
    """Send the messages, and have them all."""
    seconds = SECONDS_PER_RUN + messages * SECONDS_PER_MESSAGE
    _, generator = sides.cores("all")
    sides.generate(side, load, "bench-count", seconds, generator, wrapper)


def _by_perf(side: sides.Side, load: Sequence[str], messages: int, dumps: Path) -> int:
    """Return what the processor counts in the broker during a load."""
    file = dumps / "perf"
    options = ["-x,", "-e", PERF_EVENT, "-o", str(file), "-p", str(side.pid)]
    # It runs the generator, and counts in the broker for as long as that runs.
    _generate(side, load, messages, ["perf", "stat", *options, "--"])
    printed = file.read_text()
    counted = parse_perf(printed)
    if counted is None:
        raise CountError(f"perf counted nothing: {printed.strip()}")
    return counted


def _by_callgrind(side: sides.Side, load: Sequence[str], messages: int, dumps: Path) -> int:
    """Return what callgrind counts in the broker during a load."""
    _control("--zero", side.pid)
    _generate(side, load, messages)
    before = set(dumps.iterdir())
    _control("--dump", side.pid)
    written = [path for path in dumps.iterdir() if path not in before]
    if not written:
        raise CountError("callgrind wrote no dump")
    # Where threads are told apart each has a file of its own.
    return sum(parse_callgrind(path.read_text()) for path in written)


def _control(wish: str, pid: int) -> None:
    """Have callgrind do something.  Raises: CountError."""
    command = ["callgrind_control", wish, str(pid)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=CONTROL_SECONDS_MAX
    )
    if done.returncode != 0:
        raise CountError(f"{' '.join(command)}: {done.stdout}{done.stderr}".strip())
