"""The guard that notices when the broker's core executes more instructions for a message."""

from __future__ import annotations

import json
import os
import shutil

import core_load
import guard
import pytest


@pytest.mark.skipif(
    os.environ.get("LEVERET_EXPECT_BUILD") != "compiled", reason="the figures are of that build"
)
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="counts with valgrind")
def test_a_message_costs_no_more_than_its_figure() -> None:
    assert guard.main(["--only", "confirms"]) == 0


def test_the_error_names_the_load_the_counts_and_the_remedy() -> None:
    assert guard.judged("confirms", 1030.0, 1000.0, "cc 12") is None
    assert guard.judged("confirms", 5000.0, None, "cc 12") is None
    error = guard.judged("confirms", 1031.0, 1000.0, "cc 12")
    assert error is not None
    assert "1,031.0 instructions per message, 3.1 % more than the 1,000.0 stored for cc 12" in error
    assert "bench/guard.py --renew" in error


def test_figures_are_of_loads_that_exist() -> None:
    figures = json.loads(guard.FIGURES.read_text())
    assert {load for of_kind in figures.values() for load in of_kind} <= set(core_load.LOADS)
