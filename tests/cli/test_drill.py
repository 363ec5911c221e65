"""The restore drills of the pages on upgrades and backups: their lines are run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.client import BasicProperties, blocking
from leveret.store.format import FORMAT_VERSION
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import Pki, port_of

pytestmark = pytest.mark.commands

PAGE = Path(__file__).parents[2] / "docs/how-to/upgrade.md"
BACKUP_PAGE = PAGE.parent / "backup.md"


def lines_of(heading: str, page: Path = PAGE) -> str:
    """The first commands below a heading of a page."""
    section = page.read_text().partition(f"## {heading}\n")[2]
    found = re.search(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    assert found is not None
    return found[1]


def environment(folder: Path, **places: str) -> dict[str, str]:
    """The variables of a shell that has the command, and the places that the lines name."""
    tools = folder / "bin"
    tools.mkdir()
    command = tools / "leveret"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m leveret "$@"\n')
    command.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    return kept | places | {"PATH": f"{tools}:{kept['PATH']}"}


def publish_three(process: BrokerProcess) -> None:
    """Publish three messages to a durable queue."""
    with blocking.connect(process.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("orders", durable=True)
        for number in range(3):
            properties = BasicProperties(delivery_mode=2)
            channel.publish(b"%d" % number, "", "orders", properties)


def run(lines: str, folder: Path, variables: dict[str, str]) -> str:
    """Run lines of a page; return what they printed."""
    done = subprocess.run(
        ["bash", "-e", "-c", lines], env=variables, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_drill_finds_all_that_was_confirmed(tmp_path: Path) -> None:
    places = {"DATA": "data", "BACKUP": "backup", "DRILL": "drill"}
    named = {name: str(tmp_path / place) for name, place in places.items()}
    with BrokerProcess(tmp_path / "data") as process:
        publish_three(process)
        said = run(lines_of("The drill"), tmp_path, environment(tmp_path, **named))
        assert "/\torders\t3\n" in said
        assert re.search(r"^damage +none$", said, flags=re.MULTILINE)
        assert process.is_running()


def test_the_drill_on_another_machine_finds_all_that_was_confirmed(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    (tmp_path / "password").write_text("guest\n")
    with pki.broker_process(tmp_path / "data") as process:
        publish_three(process)
        variables = environment(
            tmp_path,
            BROKER=f"https://localhost:{port_of(process, 'https')}",
            USER_NAME="guest",
            PASSWORD_FILE=str(tmp_path / "password"),
            CA=str(pki.authority.certificate),
            BACKUP=str(tmp_path / "backup"),
            DRILL=str(tmp_path / "drill"),
            XDG_CONFIG_HOME=str(tmp_path / "home"),
        )
        run(lines_of("From another machine", BACKUP_PAGE), tmp_path, variables)
        said = run(lines_of("The drill", BACKUP_PAGE), tmp_path, variables)
    assert "the backup holds what the broker holds" in said
    assert "/\torders\t3\n" in (tmp_path / "drill.held").read_text()
    assert re.search(r"^damage +none$", said, flags=re.MULTILINE)


def test_the_page_names_the_layout_that_is_written() -> None:
    assert f"\n| {FORMAT_VERSION} | all releases of 0.1 |" in PAGE.read_text()
