"""A real broker process for tests: `leveret serve` on a free loopback port and a data directory.

It is not an embedded broker: everything goes through the command, a socket and the disk, so that
`kill` is a real SIGKILL, and a restart reads the real disk.

Invariants: `start` returns only when the broker has reported that it is ready, or raises with the
broker's output; it never sleeps.  All output is drained by one thread, so that the broker cannot
block on a full pipe.  Leaving the context kills the process if it still runs.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from typing import IO, TYPE_CHECKING, Final, Self

import psutil

from support.brokers.nursery import NURSERY, Grown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: The time limit of a start.  A cold start takes half a second on an idle machine; with ten
#: processes per core it took over 30 s.
START_SECONDS_MAX: Final = 300.0

#: The time limit of a graceful stop.
STOP_SECONDS_MAX: Final = 120.0

#: The lines of output kept for failure messages.
OUTPUT_LINES_MAX: Final = 2000

LISTENING: Final = re.compile(r"listening on amqp://[^/\s]*:(\d+)")
READY: Final = "Server startup complete"


class BrokerProcessError(Exception):
    """The broker did not start or did not stop; the text includes its output."""


class _Output:
    """Drains a pipe in a thread, and sets `port` and `ready` from the lines."""

    def __init__(self, pipe: IO[str]) -> None:
        self.lines: deque[str] = deque(maxlen=OUTPUT_LINES_MAX)
        self.port = 0
        self.ready = False
        self.settled = threading.Event()  # ready, or the end of the output
        self.grown = threading.Condition()
        self.thread = threading.Thread(target=self._drain, args=(pipe,), daemon=True)
        self.thread.start()

    def _drain(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                with self.grown:
                    self.lines.append(line)
                    self.grown.notify_all()
                if found := LISTENING.search(line):
                    self.port = int(found[1])
                if READY in line:
                    self.ready = True
                    self.settled.set()
        self.settled.set()


class BrokerProcess:
    """One broker on one data directory; may be killed and started again on the same directory.

    `settings` become environment variables `LEVERET_<NAME>`; `flags` are added to the command line,
    and `wrapper` is a command that runs it, such as strace.  `metrics` is false for a build without
    `--metrics-port`.  A `fresh` broker starts as a user would start it, not from the `NURSERY`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        flags: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        python: str = sys.executable,
        wrapper: Sequence[str] = (),
        metrics: bool = True,
        fresh: bool = False,
    ) -> None:
        self.data_dir = data_dir
        self.flags = list(flags)
        self.settings = dict(settings or {})
        self.host = host
        self.python = python
        self.wrapper = list(wrapper)
        self.metrics = metrics
        self.fresh = fresh
        self._process: subprocess.Popen[str] | Grown | None = None
        self._output: _Output | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    @property
    def command(self) -> list[str]:
        """The command line of `start`."""
        ports = ["--port", "0", "--http-port", "0"]
        if self.metrics:
            ports += ["--metrics-port", "0"]
        where = ["--host", self.host, *ports, "--data-dir", str(self.data_dir)]
        return [*self.wrapper, self.python, "-m", "leveret", "serve", *where, *self.flags]

    def _spawn(self) -> subprocess.Popen[str] | Grown:
        usual = [self.python, "-m", "leveret"]
        command = self.command
        if (
            not self.fresh
            and command[: len(usual)] == usual
            and NURSERY.takes(self.python, self.environment)
        ):
            return NURSERY.popen(command[len(usual) :], self.environment)
        return subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            text=True,
            errors="replace",
        )

    @property
    def environment(self) -> dict[str, str]:
        """The caller's environment without its own LEVERET_ settings, with ours."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
        return kept | {f"LEVERET_{k.upper()}": v for k, v in self.settings.items()}

    @property
    def port(self) -> int:
        """The port of the running broker.  Raises: BrokerProcessError if it was not started."""
        if self._output is None:
            raise BrokerProcessError("the broker was not started")
        return self._output.port

    @property
    def uri(self) -> str:
        """The URI of the default vhost for the user guest."""
        return f"amqp://guest:guest@{self.host}:{self.port}/%2F"

    def uri_of(self, user: str, password: str) -> str:
        """The URI of the default vhost for another user."""
        return f"amqp://{user}:{password}@{self.host}:{self.port}/%2F"

    @property
    def processor_seconds(self) -> float:
        """The processor time of the broker so far, which does not depend on other processes."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    @property
    def pid(self) -> int:
        """The process id of the running broker.  Raises: BrokerProcessError if there is none."""
        return self._running().pid

    @property
    def output(self) -> str:
        """The broker's output since its last start (only the last lines)."""
        return "".join(self._output.lines) if self._output is not None else ""

    def expect_line(self, text: str, seconds: float = START_SECONDS_MAX) -> str:
        """Wait for a line since the start that contains `text`; return the first one.

        Raises: BrokerProcessError if there is none in time.
        """
        output = self._output
        if output is None:
            raise BrokerProcessError("the broker was not started")
        found: list[str] = []

        def came() -> bool:
            found.extend(line for line in output.lines if text in line)
            return bool(found)

        with output.grown:
            if not output.grown.wait_for(came, seconds):
                raise BrokerProcessError(f"no line with {text!r} came\n{self.output}")
        return found[0]

    def start(self) -> Self:
        """Start the broker and wait until it is ready.  Raises: BrokerProcessError."""
        if self.is_running():
            raise BrokerProcessError("the broker is running already")
        self._process = self._spawn()
        assert self._process.stdout is not None
        self._output = _Output(self._process.stdout)
        self._output.settled.wait(START_SECONDS_MAX)
        if not self._output.ready or self._output.port == 0:
            self.kill()
            raise BrokerProcessError(f"the broker did not start: {self.command}\n{self.output}")
        return self

    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the process by SIGKILL, if it is running, and wait for its end."""
        if self._process is not None:
            self._process.kill()
            self._join()

    def terminate(self) -> int:
        """Ask for a graceful stop (SIGTERM) and return the exit code.

        Raises: BrokerProcessError.
        """
        self._running().send_signal(signal.SIGTERM)
        return self.wait(STOP_SECONDS_MAX)

    def wait(self, seconds: float) -> int:
        """Wait for the process to end and return its exit code.  Raises: BrokerProcessError."""
        process = self._running()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerProcessError(
                f"the broker did not stop in {seconds} s\n{self.output}"
            ) from None
        return self._join()

    def restart(self) -> Self:
        """Stop gracefully and start on the same directory.  Raises: BrokerProcessError."""
        code = self.terminate()
        if code != 0:
            raise BrokerProcessError(f"the broker stopped with exit code {code}\n{self.output}")
        return self.start()

    def crash(self) -> Self:
        """Kill with SIGKILL and start on the same directory.  Raises: BrokerProcessError."""
        self.kill()
        return self.start()

    def _running(self) -> subprocess.Popen[str] | Grown:
        if self._process is None:
            raise BrokerProcessError("the broker was not started")
        return self._process

    def _join(self) -> int:
        process = self._running()
        code = process.wait()
        if self._output is not None:
            self._output.thread.join(STOP_SECONDS_MAX)
        return code
