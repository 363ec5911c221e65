"""`leveret pipeline`: the jobs as one types them, each in a process and a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from brokers import Broker
from live_stream import LiveStream


def pipeline(*arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    return subprocess.run(
        [sys.executable, "-m", "leveret", "pipeline", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=kept,
    )


def test_archive_then_report(broker: Broker, stream: LiveStream, tmp_path: Path) -> None:
    """What was archived is what was published, and the report counts the same."""
    stream.publish_numbers(0, 120)
    path = str(tmp_path / "archive")
    archived = pipeline("archive", stream.name, path, "--master", "local[2]", "--uri", broker.uri)
    assert archived.returncode == 0, archived.stderr
    assert archived.stdout.startswith("120 messages in ")
    assert archived.stdout.endswith("next offset 120\n")

    page = tmp_path / "report.html"
    reported = pipeline("report", "--path", path, "--master", "local[2]", "--html", str(page))
    assert reported.returncode == 0, reported.stderr
    assert reported.stdout.splitlines()[0].startswith("120 messages, ")
    assert "120" in page.read_text(encoding="utf-8")


def test_a_report_needs_a_source() -> None:
    """Neither a stream nor an archive: a usage error before Spark starts."""
    refused = pipeline("report")
    assert refused.returncode == 64
    assert "--stream" in refused.stderr
