"""`leveret demo` without Spark, as a user runs it; with Spark it is in tests/spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.cli import exits

SECONDS_MAX = 800.0


def demo(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the demo without Spark."""
    return subprocess.run(
        [sys.executable, "-m", "leveret", "demo", "--without-spark", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


def test_every_row_proves_something_without_any_logs_of_the_users() -> None:
    """The shipped lines reach every queue, so that no check is of nothing."""
    result = demo()
    assert result.returncode == 0, result.stdout + result.stderr
    first, *_ = result.stdout.splitlines()
    assert re.fullmatch(r"this takes .+, and up to \d+ MB of disk in /\S+", first)
    counts = dict(
        re.findall(r"^ok +(\S+): its lines and no others\D+([\d,]+)", result.stdout, re.MULTILINE)
    )
    assert set(counts) == {"alerts", "warnings", "unrated", "only-access", "audit"}
    assert all(int(count.replace(",", "")) > 0 for count in counts.values())
    assert len(re.findall(r"^repeats: .+", result.stdout, re.MULTILINE)) == 1
    assert result.stdout.splitlines()[-1].startswith("next: leveret serve starts a broker")
    place = Path(first.split()[-1])
    assert not place.exists(), "nothing is left where there is no report"


@pytest.mark.parametrize("count", [1, 3000])
def test_every_line_comes_through_the_crash(tmp_path: Path, count: int) -> None:
    lines = [b"n=%d \xff %s" % (n, (b"ERROR", b"INFO", b"")[n % 3]) for n in range(count)]
    (tmp_path / "app.log").write_bytes(b"\r\n".join(lines))
    result = demo("--input", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{count:,} log lines: 1 file in {tmp_path}" in result.stdout
    assert "killed the broker (SIGKILL)" in result.stdout
    assert "no line matches the queue warnings, which must stay empty" in result.stdout
    assert "checks hold" in result.stdout


def test_what_is_to_be_kept_is_kept_and_nothing_overwritten(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "app.log").write_text("one\ntwo\n")
    output = tmp_path / "out"
    assert demo("--input", tmp_path / "in", "--output", output).returncode == 0
    assert {path.name for path in output.iterdir()} == {"data", "broker.log"}
    again = demo("--input", tmp_path / "in", "--output", output)
    assert again.returncode == exits.USAGE
    assert "is not empty" in again.stderr


def test_a_directory_without_lines_is_refused(tmp_path: Path) -> None:
    refused = demo("--input", tmp_path)
    assert refused.returncode == exits.NO_INPUT
    assert "Traceback" not in refused.stderr
