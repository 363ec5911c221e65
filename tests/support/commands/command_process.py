"""The commands as a user runs them: `python -m leveret …` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from support.brokers.broker_process import BrokerProcess
from support.brokers.nursery import NURSERY

#: The time limit of a command, for a busy machine.
COMMAND_SECONDS_MAX: Final = 300.0


class Command:
    """Runs commands against one broker: `leveret("get", "q")`."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def __call__(
        self, *arguments: str | Path, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end."""
        ours = {
            "LEVERET_URI": self.broker.uri,
            "LEVERET_DATA_DIR": str(self.broker.data_dir),
        }
        return run_leveret(*arguments, stdin=stdin, settings=ours)


def run_leveret(
    *arguments: str | Path, stdin: bytes = b"", settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, with only the given settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    environment = kept | dict(settings or {})
    words = [str(word) for word in arguments]
    if NURSERY.takes(sys.executable, environment):
        return _run_grown(words, stdin, environment)
    return subprocess.run(
        [sys.executable, "-m", "leveret", *words],
        input=stdin,
        capture_output=True,
        timeout=COMMAND_SECONDS_MAX,
        env=environment,
    )


def _run_grown(
    words: list[str], stdin: bytes, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of the nursery, with files for its input and output."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as error:
        given.write(stdin)
        given.seek(0)
        files = [file.fileno() for file in (given, out, error)]
        grown = NURSERY.start(words, environment, *files)
        try:
            code = grown.wait(COMMAND_SECONDS_MAX)
        finally:
            grown.kill()
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), error.read())
