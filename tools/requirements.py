"""Print what `pyproject.toml` requires, one requirement a line, for `pip install -r`.

    requirements.py                to build and to run
    requirements.py dev spark      and the extras named
    requirements.py --only docs    the extras alone

pip can install a project's requirements only together with the project, which is to be installed
as a wheel of its own.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main(extras: list[str]) -> None:
    """Print the requirements."""
    project = tomllib.loads(Path("pyproject.toml").read_text())
    lines: list[str] = []
    if extras[:1] == ["--only"]:
        extras = extras[1:]
    else:
        lines = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in extras:
        lines += project["project"]["optional-dependencies"][extra]
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
