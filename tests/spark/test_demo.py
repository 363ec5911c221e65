"""`leveret demo` whole, as `make demo` runs it: broker, crash, stream, archive and report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: The promise is 180 s on a quiet machine with 32,000 lines.
SECONDS_MAX = 280.0


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
    assert "<svg" in (output / "report.html").read_text()
    assert list((output / "archive").rglob("*.parquet"))
