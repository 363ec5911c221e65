"""What a user sees of the command line: all help, and all errors of commands without arguments."""

from __future__ import annotations

import re
from typing import Any

import pytest

from leveret.cli.helping.commands import SUMMARY_CHARACTERS_MAX, summary_of
from leveret.cli.root import app, command_of
from support.commands.pictures import COLUMNS, PICTURES, draw

pytestmark = pytest.mark.one_build

AGAIN = "PYTHONPATH=tests .venv/bin/python -m support.commands.pictures draws the pictures again"


def test_the_command_line_looks_as_in_the_pictures() -> None:
    drawn = draw()
    assert sorted(drawn) == sorted(path.name for path in PICTURES.iterdir()), AGAIN
    for name, text in drawn.items():
        assert text == (PICTURES / name).read_text(), AGAIN
        # Errors and manual pages are not folded by the command.
        helped = re.findall(r"(?s)\nUsage: .*?\n\[", text)
        assert [line for part in helped for line in part.split("\n") if len(line) > COLUMNS] == []


def test_a_summary_fits_the_line_of_a_list() -> None:
    groups: list[Any] = [command_of(app)]
    for group in groups:
        for command in group.commands.values():
            assert len(summary_of(command)) <= SUMMARY_CHARACTERS_MAX, command.help
            groups += [command] if hasattr(command, "commands") else []
