"""The bench's comparison of two builds: which Python, which ratios, which instructions."""

from __future__ import annotations

import json
from pathlib import Path

import builds
import instructions
import pytest
from scenarios import by_name


def test_a_build_is_named_by_its_python_its_venv_or_its_checkout(tmp_path: Path) -> None:
    venv = tmp_path / "checkout" / ".venv"
    python = venv / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/env")
    for path in (python, venv, tmp_path / "checkout"):
        # Not the target of the link: it would run without the venv's packages.
        assert builds.python_of(path) == str(python)
        assert builds.arguments([str(path)]).other == str(python)


def test_what_is_no_build_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="neither a Python nor a directory"):
        builds.python_of(tmp_path)
    with pytest.raises(SystemExit):
        builds.arguments([str(tmp_path)])
    assert "neither a Python nor a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("less_is_better", "rounds"), [(False, (2.0, 0.5, 1.0)), (True, (0.5, 2.0, 1.0))]
)
def test_a_ratio_is_above_one_where_this_build_is_faster(
    less_is_better: bool, rounds: tuple[float, ...]
) -> None:
    found = builds.compare([200, 50, 100], [100, 100, 100], less_is_better=less_is_better)
    assert found.rounds == rounds
    assert found.median == 1.0
    assert found.spread == 1.5


@pytest.mark.parametrize(("ours", "theirs"), [([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([], [])])
def test_there_is_no_ratio_where_a_round_failed(ours: list[float], theirs: list[float]) -> None:
    found = builds.compare(ours, theirs, less_is_better=False)
    assert (found.rounds, found.median, found.spread) == ((), None, None)


def test_the_table_shows_every_round() -> None:
    scenario = by_name("durable")
    figures = {builds.LEVERET: [970.0, 1000.0, 1100.0], builds.OTHER: [1000.0] * 3}
    found = {
        scenario.name: {name: {scenario.figure: rates} for name, rates in figures.items()},
    }
    rows = builds.rows(found, None, "")
    line = builds.table(rows).splitlines()[-1]
    assert line == (
        f"| {scenario.title} (msg/s) | 1,000 | 1,000 | 0.970 1.000 1.100 | 1.000 | 0.130 |"
    )
    written = json.loads(json.dumps(rows, default=builds.as_json))
    assert written[0]["compared"]["rounds"] == [0.97, 1.0, 1.1]


@pytest.mark.parametrize(
    ("printed", "counted"),
    [
        ("123456,,instructions:u,1000,100.00,,\n", 123456),
        ("# started\n7,,instructions,1000,100.00,,\n", 7),
        ("<not supported>,,instructions:u,0,100.00,,\n", None),
        ("Access to performance monitoring is limited.\n", None),
    ],
)
def test_what_perf_prints_is_read(printed: str, counted: int | None) -> None:
    assert instructions.parse_perf(printed) == counted


def test_a_dump_of_callgrind_is_read() -> None:
    dump = "# callgrind format\nevents: Ir\nsummary: 4500\n\nfn=(1) f\n3 4500\n\ntotals: 4500\n"
    assert instructions.parse_callgrind(dump) == 4500
    with pytest.raises(instructions.CountError, match="no sum"):
        instructions.parse_callgrind("# callgrind format\n")


def test_connecting_counts_for_no_message() -> None:
    connecting, each, messages = 70_000, 450, 1000
    fewer, more = (connecting + each * times * messages for times in (1, 3))
    assert instructions.per_message(fewer, more, messages) == each
