"""`leveret demo` whole, as `make demo` runs it: broker, crash, stream, archive and report."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: It takes half a minute on a quiet machine; a busy one may take many times as long.
SECONDS_MAX = 800.0


def test_every_check_holds(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("app", "web"):
        lines = [b"%d %s \xff" % (n, (b"ERROR", b"INFO", b"-")[n % 3]) for n in range(2000)]
        (tmp_path / "in" / f"{name}.log").write_bytes(b"\n".join(lines))
    output = tmp_path / "out"
    result = subprocess.run(
        [sys.executable, "-m", "leveret", "demo", "--input", tmp_path / "in", "--output", output],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "lines in the Parquet archive" in result.stdout
    assert "app.error" in result.stdout
    assert "checks hold" in result.stdout
    assert result.stderr == "", "what the JVM warns of is in its log"
    assert "Spark" in (output / "spark.log").read_text()
    assert '"job":"report"' in (output / "report.html").read_text()
    assert list((output / "archive").rglob("*.parquet"))


@pytest.mark.thorough
def test_the_report_can_be_opened_after_a_plain_run() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "leveret", "demo"],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    *_, report_line, next_line = result.stdout.splitlines()
    assert next_line.startswith("next: leveret serve starts a broker")
    report = Path(report_line.removeprefix("the report, for a browser: file://"))
    try:
        assert '"job":"report"' in report.read_text()
        assert [path.name for path in report.parent.iterdir()] == ["report.html"]
    finally:
        shutil.rmtree(report.parent)
