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


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the marked folders, and say what stays together on one worker.

    That is a file, for the sake of its fixtures, and all of Spark's, which begin because they take
    the longest: a second session would cost more than it saves.
    """
    tests = Path(__file__).parent
    for item in items:
        place = item.path.relative_to(tests)
        folder = place.parts[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)
        item.add_marker(pytest.mark.xdist_group(folder if folder == "spark" else str(place)))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
