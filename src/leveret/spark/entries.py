"""A decorator for the methods that Spark calls, which removes tracebacks from deliberate errors.

Spark shows the user the whole traceback of an exception and of all its causes.  This hides the text
of the error, which is the only part with a remedy.  So deliberate errors leave an entry without
traceback and cause, which are logged at the level DEBUG.  Any other exception is a bug in Leveret,
and retains its traceback.

When a query is stopped, Spark closes the socket of the reader's process, and kills the process.  If
the process detects the closed socket first, it calls `stop`, tries to report the end of its input
over the same socket, and prints a traceback that ends in `BrokenPipeError`.  So `stop` exits the
process at once.  (`worker_daemon.py` does the same for tasks.)

Spark pickles these objects on the driver, and restores them in other processes.  A different
version of Leveret there could misunderstand them, so they contain the version.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from leveret import __version__
from leveret.client.errors import ClientError
from leveret.errors import AmqpError
from leveret.spark.errors import SourceError
from leveret.spark.worker_daemon import end_silently

#: The methods of a data source, its readers and its writers that Spark calls and that may raise.
ENTRIES: Final = frozenset(
    {
        *("schema", "reader", "streamReader", "writer", "streamWriter"),
        *("partitions", "read", "initialOffset", "latestOffset", "reportLatestOffset"),
        *("getDefaultReadLimit", "prepareForTriggerAvailableNow", "stop"),
        *("write", "commit", "abort"),
    }
)

#: The errors that are raised deliberately, and those of the operating system.
_DELIBERATE: Final = (SourceError, AmqpError, ClientError, OSError)

#: The errors of a socket whose other end, the JVM, has closed it.
_CLOSED: Final = (BrokenPipeError, ConnectionResetError, EOFError)

#: The key, in a pickled object, of the version that has pickled it.
_VERSION: Final = "__leveret_version__"

#: The program of PySpark that runs the reader of a streaming query.
_RUNNER: Final = "python_streaming_source_runner.py"

log = logging.getLogger("leveret.spark")

T = TypeVar("T", bound=type)


def entries(kind: T) -> T:
    """Wrap the entries of a class, so that they raise and end as this module describes."""
    for name in ENTRIES & vars(kind).keys():
        method = vars(kind)[name]
        if name == "stop":
            setattr(kind, name, _stopping(method))
        elif inspect.isgeneratorfunction(method):
            setattr(kind, name, _generating(method))
        else:
            setattr(kind, name, _calling(method))
    own_state: Callable[[Any], dict[str, Any]] = vars(kind).get("__getstate__", vars)
    setattr(kind, "__getstate__", _with_version(own_state))  # noqa: B010  not known to mypy
    setattr(kind, "__setstate__", _checking_version)  # noqa: B010
    return kind


def _with_version(own_state: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    def state(self: object) -> dict[str, Any]:
        return {**own_state(self), _VERSION: __version__}

    return state


def _checking_version(self: object, state: dict[str, Any]) -> None:
    """Restore a pickled object.  Raises: SourceError if another version has pickled it."""
    made_by = state.pop(_VERSION, "of an earlier release")
    if made_by != __version__:
        raise SourceError(
            f"Leveret {made_by} on the driver and {__version__} on an executor: install the same "
            "version on all machines of the cluster (--archives, --py-files, or the image)"
        )
    vars(self).update(state)


def calling_file() -> str:
    """Return the source file of the caller of the current entry."""
    frame = sys._getframe(1).f_back  # noqa: SLF001
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def _calling(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def entry(*args: Any, **options: Any) -> Any:
        end_silently()
        try:
            return method(*args, **options)
        except _DELIBERATE as error:
            raised = _bare(error)
        # Spark shows this line as the last one of the traceback.
        raise raised from None

    return entry


def _generating(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(method)
    def entry(*args: Any, **options: Any) -> Iterator[Any]:
        end_silently()
        try:
            yield from method(*args, **options)
        except _DELIBERATE as error:
            raised = _bare(error)
        else:
            return
        raise raised from None

    return entry


def _stopping(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def entry(*args: Any, **options: Any) -> None:
        # PySpark calls `stop` while it handles the error of reading its next request.
        caught = sys.exc_info()[1]
        method(*args, **options)
        if isinstance(caught, _CLOSED) and calling_file().endswith(_RUNNER):
            sys.stderr.flush()
            os._exit(1)  # as PySpark's program would after the traceback

    return entry


def _bare(error: Exception) -> Exception:
    """Return an error without its traceback, which is logged."""
    log.debug("%s", error, exc_info=error)
    return error.with_traceback(None)
