"""The projects on the pages about frameworks are made as the pages say, and their tests pass."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGES = Path(__file__).parents[2] / "docs/how-to/frameworks"
FENCE = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: What the plugins of this project's own runs would do to the runs here.
QUIET = ("-p", "no:cacheprovider", "-p", "no:random_order")

#: The programs of a page that end by themselves and need nothing but the project.
COMMANDS = {
    "django-admin": [sys.executable, "-m", "django"],
    "python": [sys.executable],
}


def run(line: str, project: Path) -> str:
    """Run a command of a page, unless it is a service or talks to one; return its output."""
    program, *arguments = shlex.split(line, comments=True)
    if program not in COMMANDS or "runserver" in arguments:
        return ""
    done = subprocess.run(
        [*COMMANDS[program], *arguments],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}"
    return done.stdout


def add(block: str, project: Path) -> None:
    """Add a block to the file that its first line names."""
    first, _, text = block.partition("\n")
    named = re.fullmatch(r"# ([\w/]+\.py)", first)
    assert named is not None, f"{first!r} does not name the file of its block"
    file = project / named[1]
    assert file.parent.is_dir(), f"nothing made the folder of {named[1]}"
    with file.open("a") as opened:
        opened.write(f"\n\n{text}")


def follow(page: str, project: Path) -> str:
    """Do what a page says, in its order; return what its commands printed."""
    output = ""
    for language, block in FENCE.findall((PAGES / f"{page}.md").read_text()):
        if language == "python":
            add(block, project)
        else:
            for line in block.splitlines():
                output += run(line, project)
    return output


def test_the_project_of_django(tmp_path: Path) -> None:
    assert "Ran 1 test " in follow("django", tmp_path)


@pytest.mark.parametrize(("page", "count"), [("fastapi", 4), ("faststream", 2)])
def test_the_tests_of_the_services(pytester: pytest.Pytester, page: str, count: int) -> None:
    follow(page, pytester.path)
    pytester.runpytest_subprocess(*QUIET, "--timeout=120").assert_outcomes(passed=count)


def test_every_page_is_followed() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {"django", "fastapi", "faststream"}
