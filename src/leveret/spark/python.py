"""The Python that Spark starts for data sources, and the check that it can run this one.

Spark takes it from the environment of its JVM: `PYSPARK_DRIVER_PYTHON`, else `PYSPARK_PYTHON`, else
`python3`.  It starts that same command on the driver's machine, to plan, and on every executor's,
to read and write.
"""

from __future__ import annotations

import os
import subprocess
import sys
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


def check_python() -> None:
    """Check the Python that Spark will start for the data source.

    Raises: PythonError.
    """
    variable = next((name for name in VARIABLES if os.environ.get(name)), None)
    command = os.environ[variable] if variable is not None else _DEFAULT
    if command == sys.executable:
        return
    fault = _fault(command)
    if fault:
        named = f"{variable} is {command!r}" if variable else f"{' and '.join(VARIABLES)} are unset"
        raise PythonError(
            f"{named}: Spark would run data sources by {command!r}, here and on every executor, "
            f"and {fault}. Before Spark's JVM starts, unset PYSPARK_DRIVER_PYTHON and set "
            "PYSPARK_PYTHON to a Python that has leveret and pyarrow on all machines: an "
            "absolute path that is the same everywhere, or a command that each finds in its PATH. "
            f"This Python is {sys.executable}."
        )


def _fault(command: str) -> str:
    """Return why a command cannot run workers; an empty text if it can."""
    try:
        answer = subprocess.run(  # noqa: S603  what Spark would run
            [command, "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS_MAX,
            check=False,
        )
    except OSError as error:
        return f"it cannot be started ({error.strerror})"
    except subprocess.TimeoutExpired:
        return f"it does not answer as a Python within {_ANSWER_SECONDS_MAX:.0f} s"
    mark, *missing = answer.stdout.split() or [""]
    if mark != "PYTHON":
        return "it is no Python"
    return f"it lacks {', '.join(missing)}" if missing else ""
