"""An account of the work of a broker in this process: lines of its code, and memory.

Lines are counted on the plain Python build.  Memory, the maximum above the amount at the beginning,
is measured on both builds.  The account ends an endless loop.
"""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

import leveret

_ROOT: Final = str(Path(leveret.__file__).parent)


class TooMuchWork(BaseException):
    """The account's lines are used up; not an Exception, so that no handler catches it."""


class Account:
    """A context with a limit on the lines that run; `lines` and `most_bytes` are the totals."""

    def __init__(self, lines_max: int) -> None:
        self.lines = 0
        self.most_bytes = 0
        self._lines_max = lines_max
        self._before = 0

    def __enter__(self) -> Self:
        if not tracemalloc.is_tracing():
            tracemalloc.start(1)
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]
        sys.settrace(self._called)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.settrace(None)
        self.most_bytes = tracemalloc.get_traced_memory()[1] - self._before

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._ran if frame.f_code.co_filename.startswith(_ROOT) else None

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines > self._lines_max:
                raise TooMuchWork(f"{frame.f_code.co_qualname} runs on")
        return self._ran


def stop() -> None:
    """Stop measuring memory."""
    tracemalloc.stop()
