"""The tutorial runs as it stands there, step by step, and prints what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker

PAGE = Path(__file__).parents[2] / "docs/tutorials/first-messages.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
URI = "amqp://guest:guest@localhost:5672/"


def section(title: str) -> str:
    """Return one section of the page."""
    return PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def steps(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield language, code and, where a block of text follows, what the code is to print."""
    blocks = BLOCK.findall(text)
    following = [*blocks[1:], ("", "")]
    for (language, code), (next_language, printed) in zip(blocks, following, strict=True):
        if language != "text":
            yield language, code, printed if next_language == "text" else ""


def run_commands(commands: str, broker: BrokerProcess) -> str:
    """Run commands of the page in a shell; return what they print."""
    environment = {name: os.environ[name] for name in ("LANG", "HOME") if name in os.environ} | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LEVERET_DATA_DIR": str(broker.data_dir),
        "LEVERET_URI": broker.uri,
    }
    shell = ["bash", "-eu", "-o", "pipefail", "-c", commands]
    done = subprocess.run(
        shell, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_step_prints_what_the_page_says(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_own_broker()
    tested = 0
    with BrokerProcess(tmp_path / "data") as broker:
        ready = next(steps(section("Run a broker")))[2]
        assert ready.replace(":5672", f":{broker.port}") in broker.output
        for title in ("Publish", "Look at the queue from Spark", "Consume"):
            for language, code, expected in steps(section(title)):
                if language == "sh":
                    printed = run_commands(code, broker)
                else:
                    capsys.readouterr()
                    there = code.replace(URI, broker.uri.removesuffix("%2F"))
                    exec(compile(there, PAGE.name, "exec"), {})  # noqa: S102  our own page
                    printed = capsys.readouterr().out
                if language == "sh" or expected:
                    assert printed.strip() == expected.strip(), code
                    tested += bool(expected)
    assert tested == 6
