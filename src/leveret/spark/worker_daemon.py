"""PySpark's daemon for Python workers, without tracebacks from workers that Spark has dropped.

When Spark needs no more rows (`show`, `limit`, `take`, a stopped query) or no more workers (at the
end of a session, and a minute after the last plan), it closes a worker's socket and makes the
daemon kill the worker.  If the worker first writes to the closed socket, PySpark's daemon prints a
traceback that ends in `BrokenPipeError`.  This module makes such a worker end silently, with the
same exit code.

Workers that run the source call `end_silently`, in any session.  All other workers, such as those
of functions, are silent if the setting `spark.python.daemon.module` names this module, as in the
local sessions of `leveret.spark.session`: then Spark starts this daemon for tasks.
"""

from __future__ import annotations

import functools
import sys
import traceback
from types import ModuleType
from typing import Any, Final

from pyspark import daemon

_DAEMON: Final = "pyspark.daemon"


def silence(program: Any) -> None:
    """Have PySpark's daemon, or a worker that it forked, print nothing about a closed socket.

    The last that a failing worker does is to print a traceback.
    """
    quiet: Any = ModuleType(traceback.__name__)
    vars(quiet).update(vars(traceback))
    quiet.print_exc = _print_unless_closed
    program.traceback = quiet


def _print_unless_closed() -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


@functools.cache
def end_silently() -> None:
    """Make this process end silently if PySpark's own daemon forked it."""
    program: Any = sys.modules["__main__"]
    if getattr(program.__spec__, "name", None) == _DAEMON:
        silence(program)


if __name__ == "__main__":
    silence(daemon)
    daemon.manager()
