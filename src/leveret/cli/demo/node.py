"""The demo's broker, in its own process, which can be killed and restarted on the same data."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Final

from leveret.cli import exits

#: The time limit for a start, including recovery, and for a stop.
SECONDS_MAX: Final = 60.0

_LISTENING: Final = re.compile(r"listening on amqp://127\.0\.0\.1:(\d+)")
_READY: Final = "Server startup complete"
_LOG_LINES_SHOWN: Final = 20


class DemoBroker:
    """The broker process; `running` is set while it accepts connections."""

    def __init__(self, directory: Path) -> None:
        self._data_dir = directory / "data"
        self._log_path = directory / "broker.log"
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self.running = threading.Event()

    @property
    def uri(self) -> str:
        """The current URI of the broker."""
        return f"amqp://guest:guest@127.0.0.1:{self._port}/%2F"

    def start(self) -> None:
        """Start on a free port and wait until it is ready.  Raises: Failure."""
        ports = ["--port", "0", "--http-port", "0"]
        command = [sys.executable, "-m", "leveret", "serve", "--host", "127.0.0.1", *ports]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own command)
                [*command, "--data-dir", str(self._data_dir)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=kept,
                text=True,
            )
        assert self._process.stdout is not None
        ready = threading.Event()
        reader = threading.Thread(target=self._read, args=(self._process.stdout, ready))
        reader.daemon = True
        reader.start()
        if not ready.wait(SECONDS_MAX) or not self._port:
            self.kill()
            raise exits.Failure("the broker did not start:", exits.UNAVAILABLE, *self._log_end())
        self.running.set()

    def _read(self, output: IO[str], ready: threading.Event) -> None:
        """Read the port from the broker's output; set `ready` when it is ready or has ended."""
        self._port = 0
        with output:
            for line in output:
                if found := _LISTENING.search(line):
                    self._port = int(found[1])
                if _READY in line:
                    ready.set()
        ready.set()

    def kill(self) -> int:
        """Kill the broker with SIGKILL; return its exit code."""
        self.running.clear()
        if self._process is None:
            return 0
        self._process.kill()
        return self._process.wait()

    def stop(self) -> int:
        """Stop the broker gracefully; return its exit code.  Raises: Failure."""
        self.running.clear()
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            text = "the broker did not stop:"
            raise exits.Failure(text, exits.UNAVAILABLE, *self._log_end()) from None

    def _log_end(self) -> list[str]:
        """Return the last lines of the broker's log."""
        lines = self._log_path.read_text(errors="replace").splitlines()
        return lines[-_LOG_LINES_SHOWN:]
