"""PySpark's daemon for Python workers, without tracebacks from workers that Spark has dropped.

Spark starts it for tasks if the setting `spark.python.daemon.module` names this module, as in the
local sessions of `leveret.spark.session`.  For planning, Spark always starts its own daemon.

When Spark needs no more rows (`show`, `limit`, `take`, a stopped query) or no more workers (at the
end of a session, and a minute after the last plan), it closes a worker's socket and makes the
daemon kill the worker.  If the worker first writes to the closed socket, PySpark's daemon prints a
traceback that ends in `BrokenPipeError`.  With this daemon, such a worker ends silently, with the
same exit code.
"""

from __future__ import annotations

import functools
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

from pyspark import daemon

_DAEMON: Final = "pyspark.daemon"

ServeTask = Callable[[socket.socket, bool], int]


def silent(serve_task: ServeTask) -> ServeTask:
    """Wrap `pyspark.daemon.worker`, which serves a socket's next task and returns an exit code.

    The exit code is 1 if Spark has closed the socket.
    """

    @functools.wraps(serve_task)
    def serve_silently(sock: socket.socket, authenticated: bool) -> int:
        try:
            return serve_task(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return serve_silently


@functools.cache
def end_silently() -> None:
    """Make this process end silently after its task, if PySpark's own daemon forked it."""
    program: Any = sys.modules["__main__"]
    if getattr(program.__spec__, "name", None) == _DAEMON:
        program.worker = silent(program.worker)


if __name__ == "__main__":
    setattr(daemon, "worker", silent(daemon.worker))  # noqa: B010  mypy takes it for a method
    daemon.manager()
