"""The commands as a user runs them: `python -m leveret …` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker_process import BrokerProcess

#: How long a command may take on a busy machine.
COMMAND_SECONDS_MAX: Final = 60.0


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
    """Run a command to its end; it sees no settings but those given."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    return subprocess.run(
        [sys.executable, "-m", "leveret", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=COMMAND_SECONDS_MAX,
        env=kept | dict(settings or {}),
    )
