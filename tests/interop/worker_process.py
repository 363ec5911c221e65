"""Workers of other people's task libraries: their own commands, in real processes.

Not the broker's process (see `broker_process`).  What a worker prints goes to a file, which is
shown when a test fails; a worker that is left is killed, with the processes that it forked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

#: How long a worker may take to end after it was asked to; kombu alone waits for 1 s.
STOP_SECONDS_MAX: Final = 60.0

TESTS: Final = Path(__file__).parents[1]


class WorkerProcess:
    """One `python -m <module> …` that can import `interop.*`; a context manager."""

    def __init__(
        self, directory: Path, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.command = [sys.executable, "-m", *command]
        self.environment = {**os.environ, **environment, "PYTHONPATH": str(TESTS)}
        self.output = directory / "output"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.output.parent,
                start_new_session=True,
            )
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        sys.stdout.write(self.output.read_text(errors="replace"))

    def stop(self) -> int:
        """Ask for a graceful stop (SIGTERM) and return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for the process to end by itself and return the exit code."""
        assert self._process is not None
        return self._process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """End the process and all that it forked by SIGKILL, if they live."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
