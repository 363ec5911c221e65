"""`tools/orders.py` finds tests that need others before them, and gives an order again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("random_order", reason="pytest-random-order is not installed")

ORDERS = Path(__file__).parents[2] / "tools/orders.py"

#: Passes after `test_leaves` only, which lies in another file.
NEEDS = "import sys\n\ndef test_needs():\n    assert sys.left\n"
LEAVES = "import sys\n\ndef test_leaves():\n    sys.left = True\n"

#: Each test notes that it ran, and the last one wants to be the last.
SIX = """
import pathlib

def note(name):
    with pathlib.Path("ran").open("a") as ran:
        ran.write(name)
    return pathlib.Path("ran").read_text()

def test_a(): note("a")
def test_b(): note("b")
def test_c(): note("c")
def test_d(): note("d")
def test_e(): note("e")
def test_f(): assert len(note("f")) == 6
"""


def orders(where: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit code of a run in a directory, on one process, and what it printed.

    pytest loads no plugin but the one for the order: it is there in half a second.
    """
    plugins = ["-p", "random_order.plugin"] if "--no-alone" in arguments else []
    done = subprocess.run(
        [sys.executable, str(ORDERS), "--jobs=1", *arguments, ".", "--", *plugins],
        cwd=where,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_file_that_needs_another_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(LEAVES)
    (tmp_path / "test_b.py").write_text(NEEDS)
    code, printed = orders(tmp_path, "--orders=0")
    assert code == 1
    assert "passed  test_a.py alone" in printed
    assert "FAILED  test_b.py alone" in printed
    assert "FAILED test_b.py::test_needs" in printed
    assert "1 runs passed, 1 failed" in printed


def test_a_seed_is_an_order_and_gives_it_again(tmp_path: Path) -> None:
    (tmp_path / "test_six.py").write_text(SIX)
    ran = tmp_path / "ran"
    seen = []
    for seed in (1, 2, 1):
        code, printed = orders(tmp_path, "--no-alone", f"--seed={seed}")
        seen.append(ran.read_text())
        ran.unlink()
        assert sorted(seen[-1]) == list("abcdef")
        assert (code == 0) is seen[-1].endswith("f")
        assert ("FAILED test_six.py::test_f" in printed) is not seen[-1].endswith("f")
    assert seen[0] == seen[2] != seen[1]
    assert "abcdef" not in seen


def test_new_seeds_are_printed(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_nothing():\n    pass\n")
    code, printed = orders(tmp_path, "--no-alone", "--orders=2")
    assert code == 0
    (seeds,) = re.findall(r"^seeds: (\d+ \d+);", printed, re.MULTILINE)
    for seed in seeds.split():
        assert f"passed  order {seed}: 1 passed" in printed
    assert "2 runs passed, 0 failed" in printed
