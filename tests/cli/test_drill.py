"""The restore drill of the page on upgrades: its lines are run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from leveret.client import BasicProperties, blocking
from leveret.store.format import FORMAT_VERSION

pytestmark = pytest.mark.commands

PAGE = Path(__file__).parents[2] / "docs/how-to/upgrade.md"


def lines_of(heading: str) -> str:
    """The first commands below a heading of the page."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2]
    found = re.search(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    assert found is not None
    return found[1]


def test_the_drill_finds_all_that_was_confirmed(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "leveret"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m leveret "$@"\n')
    command.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    places = {"DATA": "data", "BACKUP": "backup", "DRILL": "drill"}
    kept |= {name: str(tmp_path / place) for name, place in places.items()}
    kept["PATH"] = f"{tools}:{kept['PATH']}"
    with BrokerProcess(tmp_path / "data") as process:
        with blocking.connect(process.uri) as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.queue_declare("orders", durable=True)
            for number in range(3):
                properties = BasicProperties(delivery_mode=2)
                channel.publish(b"%d" % number, "", "orders", properties)
        done = subprocess.run(
            ["bash", "-e", "-c", lines_of("The drill")],
            env=kept, cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "/\torders\t3\n" in done.stdout
        assert re.search(r"^damage +none$", done.stdout, flags=re.MULTILINE)
        assert process.is_running()


def test_the_page_names_the_layout_that_is_written() -> None:
    assert f"\n| {FORMAT_VERSION} | all releases of 0.1 |" in PAGE.read_text()
