"""`leveret man`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from leveret.cli import app, exits
from leveret.cli.helping.manual import commands, page_of, roff

pytestmark = pytest.mark.one_build

PAGES = commands()


def options_of(command: Any) -> set[str]:
    """The long options of a command and of all below it."""
    found = {name for one in command.params for name in one.opts if name.startswith("--")}
    for inner in getattr(command, "commands", {}).values():
        found |= options_of(inner)
    return found


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_every_option_and_command(path: str) -> None:
    command = PAGES[path]
    text = page_of(path, command).replace("\\-", "-")
    assert f".SH NAME\n{path.replace(' ', '-')} - " in text
    for name in getattr(command, "commands", {}):
        assert f'.SS "{path} {name}"' in text
    if path != "leveret":
        # Those of a command of leveret itself have a page of their own.
        assert {name for name in options_of(command) - {"--help"} if name not in text} == set()


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff judges the pages")
def test_groff_finds_no_fault(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["man", "--to", str(tmp_path / "man1")])
    assert result.exit_code == 0, result.output
    files = sorted((tmp_path / "man1").iterdir())
    assert len(files) == len(PAGES)
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o644
        judge = ["groff", "-man", "-Tutf8", "-ww", "-z", str(file)]
        done = subprocess.run(judge, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), file
    shown = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-c", str(tmp_path / "man1/leveret-serve.1")],
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    plain = re.sub(r".\x08", "", shown)
    assert "--memory-bytes-max" in plain
    assert "Run a broker until SIGTERM or SIGINT" in plain


def test_what_is_no_command_has_no_page(tmp_path: Path) -> None:
    for line in (["man", "nothing"], ["man", "serve", "--to", str(tmp_path)]):
        assert CliRunner().invoke(app, line).exit_code == exits.USAGE
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(app, ["man", "--to", str(tmp_path / "file")])
    assert refused.exit_code == exits.CANNOT_CREATE


def test_text_is_shown_as_it_is() -> None:
    assert roff(".a\n'b\\c -d") == "\\&.a\n\\&'b\\ec \\-d"
    assert roff("caf\u00e9") == "caf\\[u00E9]"
