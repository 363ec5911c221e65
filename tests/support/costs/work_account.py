"""An account of the work that a broker in this process does: lines of its code, and memory.

Lines are counted where the code is plain Python; memory, the most that was held above what was at
the beginning, on both builds.  A loop that runs on and on is ended by the account.
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
    """More lines than the account has: no handler of errors keeps it."""


class Account:
    """A context in which no more than so many lines run; `lines` and `most_bytes` say how many."""

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
    """Let memory be counted no more."""
    tracemalloc.stop()
