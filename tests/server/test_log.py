"""The log: a line an event, whatever a client sent, and harmless when it cannot be written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from command_process import run_leveret
from leveret.client.blocking import connect
from leveret.server.log import escape


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 兎", "plain é 兎"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[2Jred", "\\x1b[2Jred"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("a\u202eb\u2028c\ufeff", "a\\u202eb\\u2028c\\ufeff"),
        ("\ud800", "\\ud800"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert escape(text) == shown


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_clients_names_add_no_line_to_the_log(tmp_path: Path, form: str) -> None:
    forged = "\n2026-01-01 [critical ] forged \x1b[2J"
    with BrokerProcess(tmp_path, settings={"log_format": form}) as broker:
        with connect(broker.uri) as connection, pytest.raises(Exception, match="404"):
            connection.channel().queue_declare(forged, passive=True)
        assert broker.terminate() == 0
        assert "forged" in broker.output
        assert "\x1b" not in broker.output
        assert not [line for line in broker.output.splitlines() if line.startswith("2026-01-01")]


def test_a_broker_runs_on_without_its_log_and_its_output(tmp_path: Path) -> None:
    """Both streams are pipes whose reader is gone from the start: each line of them fails."""
    reading, writing = os.pipe()
    broker = BrokerProcess(tmp_path)
    process = subprocess.Popen(
        broker.command, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing
    )
    try:
        os.close(writing)
        lines = os.fdopen(reading, "rb")
        port = next(int(line.split(b":")[-1]) for line in lines if b"on amqp://" in line)
        # From here on every line of the log meets a pipe that nobody reads.
        lines.close()
        for _ in range(3):
            with connect(f"amqp://127.0.0.1:{port}") as connection:
                connection.channel().queue_declare("q")
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("redirection", [">&- 2>&-", ">/dev/full 2>/dev/full"])
def test_a_broker_starts_without_streams(tmp_path: Path, redirection: str) -> None:
    broker = BrokerProcess(tmp_path)
    command = f'exec "$@" {redirection}'
    process = subprocess.Popen(["/bin/sh", "-c", command, "sh", *broker.command])
    try:
        asked = {"LEVERET_DATA_DIR": str(tmp_path)}
        codes = (run_leveret("list", "queues", settings=asked).returncode for _ in range(100))
        assert 0 in codes
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
