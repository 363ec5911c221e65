"""The choice of the Python that Spark starts for the data source, and a check that it can run it.

Spark finds and runs data sources by a command from the environment of its JVM:
`PYSPARK_DRIVER_PYTHON`, else `PYSPARK_PYTHON`, else `python3`.  It starts this command on the
driver's machine to plan, and on every executor's machine to read and write.  For a source that the
driver has registered, the command is `PYSPARK_PYTHON`, else `python3`, with the driver's
`--py-files`.
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

#: Prints a mark and the missing packages.  Spark itself provides PySpark.
_PROBE: Final = (
    "from importlib.util import find_spec as f\n"
    "print('PYTHON', *(n for n in ('pyarrow', 'leveret') if f(n) is None))"
)


class PythonError(RuntimeError):
    """The Python that Spark would start cannot run the source.  The text names the setting."""


def use_this_python() -> None:
    """Make a local Spark run this Python; the JVM must not be started yet.

    `PYSPARK_DRIVER_PYTHON` may name the command that started the driver, such as `jupyter`, which
    cannot run as a worker.
    """
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def must_register(
    environment: Callable[[str], str | None], registered: str, files: Sequence[str]
) -> bool:
    """Return whether a Spark with this JVM environment can run the source only if registered.

    `registered` is the command that runs a registered source, with `files` in its path.  These are
    the `--py-files`, which executors receive only for registered sources.

    Raises: PythonError if Spark can run the source neither way.
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
    """Return the variable that sets the command, or "" for the default, and the command."""
    for variable in VARIABLES:
        command = environment(variable)
        if command:
            return variable, command
    return "", _DEFAULT


def _explained(variable: str, command: str, fault: str) -> str:
    """Return the text of a `PythonError`, with the remedy."""
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
    """Return why a command cannot run workers with a `PYTHONPATH`, or "" if it can."""
    try:
        answer = subprocess.run(  # noqa: S603  Spark would run the same command
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
        return "it is not a Python"
    return f"it lacks {', '.join(missing)}" if missing else ""
