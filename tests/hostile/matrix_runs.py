"""The whole permission matrix, on more users than the test of it takes; `make matrix` runs this.

    python tests/hostile/matrix_runs.py

Each row is tried with every part of what it needs, with every pair of rights, and with every tag
beside every right.  What it prints at the end: how many tries there were, how many of them were
refused, how many answers were compared with those of an empty broker, and every difference.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    # The helpers that all tests share lie one folder up.
    sys.path[0] = str(Path(__file__).parents[1])

from support.hostile.hostile_matrix import Report, read_matrix, try_methods, try_routes, undeclared


def shown(what: str, report: Report, began: float) -> int:
    """Print what came of the tries; return how many differences there were."""
    seconds = time.monotonic() - began
    _say(
        f"{what}: {report.tries} tries, {report.refused} refused, {report.compared} compared with "
        f"an empty broker, {len(report.differences)} differences in {seconds:.0f} s"
    )
    for text in report.differences:
        _say(f"  {text}")
    return len(report.differences)


def main() -> int:
    """Run all of it; return the exit code."""
    matrix = read_matrix()
    missing = undeclared(matrix)
    for text in missing:
        _say(text)
    began = time.monotonic()
    differences = shown("methods", try_methods(matrix, whole=True), began)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="leveret-matrix-") as directory:
        report = try_routes(matrix, Path(directory), whole=True)
    differences += shown("routes", report, began)
    return 1 if missing or differences else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
