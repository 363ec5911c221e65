"""What all tests share: marks by folder and the hypothesis profiles.

Tests run against the installed package, never against `src/`.  `crash`, `differential`, `interop`
and `spark` are folders and marks at once, so that no test in them can miss its mark.
"""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

MARKED_FOLDERS = ("crash", "differential", "interop", "spark")

# A shared machine is no stopwatch: no deadlines.  `ci` draws the same examples in every run.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the marked folders."""
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)
