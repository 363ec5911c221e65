"""Debian's Prometheus: its tool checks the text of our metrics, and our alert rules."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from brokers import Broker
from leveret.client.blocking import connect
from metrics_text import ask, metrics_port

DEPLOY = Path(__file__).parents[2] / "deploy"

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="Debian's package prometheus is not installed",
)

PATHS = (
    "/metrics",
    "/metrics/per-object",
    "/metrics/detailed?family=queue_metrics&family=channel_metrics&family=connection_metrics",
    "/metrics/memory-breakdown",
)


def promtool(*words: str, text: str | None = None) -> tuple[int, str]:
    """Return the exit code and what the tool says."""
    done = subprocess.run(
        ["promtool", *words], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def test_the_rules_are_right() -> None:
    code, said = promtool("check", "rules", str(DEPLOY / "prometheus" / "alerts.yaml"))
    assert code == 0, said


@pytest.mark.parametrize("path", PATHS)
def test_the_tool_has_nothing_to_say_of_the_text(broker: Broker, path: str) -> None:
    with connect(broker.uri) as connection:
        channel = connection.channel()
        channel.queue_declare("checked")
        channel.consume("checked")
        if broker.process is None:
            pytest.skip("the broker is not ours")
        _, text, _ = ask(metrics_port(broker.process), path)
        assert promtool("check", "metrics", text=text) == (0, "")
        channel.queue_delete("checked")
