"""What pytest is told for all tests: what they start is as if nothing around them mattered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

#: As a shell that is not interactive starts a job in the background.
IN_BACKGROUND = """
import signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
import conftest
asked = "import signal; print([signal.getsignal(n) == signal.SIG_IGN for n in (2, 3)])"
subprocess.run([sys.executable, "-c", asked], check=True)
"""


def test_what_tests_start_in_the_background_can_be_interrupted() -> None:
    told = subprocess.run(
        [sys.executable, "-c", IN_BACKGROUND],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": str(TESTS)},
    )  # fmt: skip
    assert told.stdout.strip() == "[False, False]"
