"""What all tests share: marks by folder and the hypothesis profiles.

Tests run against the installed package, never against `src/`.  `crash`, `differential`, `interop`
and `spark` are folders and marks at once, so that no test in them can miss its mark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

MARKED_FOLDERS = ("crash", "differential", "interop", "spark")

# A shared machine is no stopwatch: no deadlines.  `ci` draws the same examples in every run.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the marked folders; Spark's begin, because they take the longest."""
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Say that what `Together` names together goes to one worker."""
    return Together(config, log)


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps a file on one worker, for the sake of its fixtures, and all of Spark's files.

    A second session of Spark would cost more than it saves.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "tests/spark" if file.startswith("tests/spark/") else file
