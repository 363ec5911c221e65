"""What all tests share: marks by folder and the hypothesis profiles.

Tests run against the installed package, never against `src/`.  `crash`, `differential`, `interop`,
`pages` and `spark` are folders and marks at once, so that no test in them can miss its mark.  What
is the same in each build is tested on one of them: `ONE_BUILD_FOLDERS` are about the sources, or
about modules that are never compiled, or drive long loads of a broker that other folders test on
both builds, or count steps and bytes, which are the same in each.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from support.brokers.nursery import NURSERY

MARKED_FOLDERS = ("crash", "differential", "interop", "pages", "spark")
ONE_BUILD_FOLDERS = (
    "cli",
    "clusters",
    "config",
    "hostile",
    "house",
    "kept",
    "management",
    "model",
    "pipelines",
    "replay",
    "scoreboard",
    "server",
    "testing",
    "tls",
    "tools",
)

#: Tests of the compiled build alone, most of which start processes.
ONE_BUILD = ("commands", "crash", "interop", "one_build", "pages")

NURSERY.open = True

# A shell that is not interactive has its background jobs ignore what Ctrl-C and Ctrl-\ send, and
# whatever a test starts would inherit that: a program that is interrupted would go on for ever.
for number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )

# A shared machine is no stopwatch: no deadlines.  `ci` draws the same examples in every run.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the marked folders, and have those that take long begin."""
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)
        elif folder in ONE_BUILD_FOLDERS and item.get_closest_marker("both_builds") is None:
            item.add_marker("one_build")
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    """Return which tests an item is among: Spark's, which take the longest; others' processes."""
    if item.get_closest_marker("spark") is not None:
        return 0
    return 1 if any(item.get_closest_marker(mark) is not None for mark in ONE_BUILD) else 2


@pytest.fixture(scope="module", autouse=True)
def _closes_what_it_opens() -> Iterator[None]:
    """Have a file of tests fail that leaves a socket, a file or a loop open.

    Else the collector finds it later, and whatever test runs then fails.  What is left by then
    stays, and need not be looked at again.
    """
    yield
    gc.collect()
    gc.freeze()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the collector pass over what the collection made, which stays to the end.

    Tests that measure memory collect several times each, and would look at all of it again.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Say that what `Together` names together goes to one worker."""
    return Together(config, log)


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps a file on one worker, for the sake of its fixtures, and so all that share a session.

    A second session of Spark would cost more than it saves.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "tests/spark" if file.startswith("tests/spark/") and _shares(file) else file


@cache
def _shares(file: str) -> bool:
    """Tell whether a file of tests asks for the session of Spark that all share."""
    return "SparkSession" in (Path(__file__).parents[1] / file).read_text()
