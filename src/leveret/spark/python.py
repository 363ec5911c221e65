"""The Python that Spark starts for the data source, and the check that it can run it.

Spark looks for data sources, and runs those that it finds, by a command from the environment of its
JVM: `PYSPARK_DRIVER_PYTHON`, else `PYSPARK_PYTHON`, else `python3`.  It starts that same command on
the driver's machine, to plan, and on every executor's, to read and write.  A source that the driver
has registered runs by `PYSPARK_PYTHON`, else `python3`, with the driver's `--py-files`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final

#: The environment variables that Spark reads, in order of precedence.
VARIABLES: Final = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")

_DEFAULT: Final = "python3"
_ANSWER_SECONDS_MAX: Final = 60.0

#: Prints a mark, and the missing packages.  Spark itself brings PySpark.
_PROBE: Final = (
    "from importlib.util import find_spec as f\n"
    "print('PYTHON', *(n for n in ('pyarrow', 'leveret') if f(n) is None))"
)


class PythonError(RuntimeError):
    """The Python that Spark would start cannot run the source; the text names the setting."""


def use_this_python() -> None:
    """Make a local Spark, whose JVM is not started yet, run this Python.

    `PYSPARK_DRIVER_PYTHON` may name the command that started the driver, such as `jupyter`, which
    cannot run as a worker.
    """
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def must_register(
    environment: Callable[[str], str | None], registered: str, files: Sequence[str]
) -> bool:
    """Return whether a Spark, by its JVM's environment, finds the source only once registered.

    `registered` is the command by which it would then run, with `files` in its path: those of
    `--py-files`, which executors have only for what is registered.

    Raises: PythonError if neither way can run it.
    """
    variable, command = _choice(environment)
    if command == sys.executable and not files:
        return False
    path = list(filter(None, [environment("PYTHONPATH")]))
    fault = _fault(command, path)
    if not (fault or files):
        return False
    can_register = not _fault(registered, [*files, *path])
    if fault and not can_register:
        raise PythonError(_explained(variable, command, fault))
    return can_register


def _choice(environment: Callable[[str], str | None]) -> tuple[str, str]:
    """Return the variable that names the command, if any, and the command."""
    for variable in VARIABLES:
        command = environment(variable)
        if command:
            return variable, command
    return "", _DEFAULT


def _explained(variable: str, command: str, fault: str) -> str:
    """Return the text of an error with the remedy."""
    named = f"{variable} is {command!r}" if variable else f"{' and '.join(VARIABLES)} are unset"
    return (
        f"{named}: Spark would run data sources by {command!r}, here and on every executor, "
        f"and {fault}. Before Spark's JVM starts, unset PYSPARK_DRIVER_PYTHON and set "
        "PYSPARK_PYTHON to a Python that has leveret (or leveret-spark) and pyarrow on all "
        "machines: an absolute path that is the same everywhere, or a command that each finds in "
        "its PATH. "
        f"This Python is {sys.executable}."
    )


def _fault(command: str, path: Sequence[str]) -> str:
    """Return why a command cannot run workers with a `PYTHONPATH`; an empty text if it can."""
    try:
        answer = subprocess.run(  # noqa: S603  what Spark would run
            [command, "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS_MAX,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        )
    except OSError as error:
        return f"it cannot be started ({error.strerror})"
    except subprocess.TimeoutExpired:
        return f"it does not answer as a Python within {_ANSWER_SECONDS_MAX:.0f} s"
    mark, *missing = answer.stdout.split() or [""]
    if mark != "PYTHON":
        return "it is no Python"
    return f"it lacks {', '.join(missing)}" if missing else ""
