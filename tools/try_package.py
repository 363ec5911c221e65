"""Try a package of Leveret, a wheel or an sdist, as somebody who has nothing but it.

usage: try_package.py [--expect pure|compiled] [--uvx] PACKAGE

It makes a bare virtual environment with the Python that runs it, installs the package with what it
needs from pip's index, and has it start a broker, take a message and give it back.  It ends with 1,
and says why, where something of that does not work.

With `--uvx`, uv chooses among the wheels in the package's directory for this Python and runs
`uvx leveret serve`, without an environment of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

#: How long a command may take; an sdist is built.
SECONDS_MAX = 1800


def main() -> int:
    """Try the package that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("package", type=Path)
    parser.add_argument("--expect", choices=("pure", "compiled"), default="")
    parser.add_argument("--uvx", action="store_true")
    given = parser.parse_args()
    package = given.package.resolve()
    with tempfile.TemporaryDirectory() as folder:
        if given.uvx:
            leveret = uvx(package.parent)
            fault = tried(leveret, given.expect, Path(folder))
        else:
            leveret = [str(Path(folder, "environment/bin/leveret"))]
            fault = installed(package, Path(folder)) or tried(leveret, given.expect, Path(folder))
    if fault:
        print(f"{given.package}: {fault}", file=sys.stderr)
        return 1
    how = "run by uvx" if given.uvx else "installed"
    print(f"{given.package}: {how}, and a broker took a message and gave it back")
    return 0


def uvx(index: Path) -> list[str]:
    """Return the command that runs `leveret` of the wheels in a directory by uv."""
    found = shutil.which("uvx")
    if found is None:
        sys.exit("there is no uvx: install uv (pip install uv)")
    # A wheel that was made again has the same name, so what uv kept of it does not count.
    fresh = ["--refresh-package", "leveret"]
    return [
        found,
        "--quiet",
        *fresh,
        "--python",
        sys.executable,
        "--find-links",
        str(index),
        "leveret",
    ]


def installed(package: Path, folder: Path) -> str:
    """Install the package into a bare environment; return why that fails, or nothing."""
    home = folder / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    done = run([*pip, "install", "--quiet", "--no-compile", str(package)], folder)
    if done.returncode != 0:
        return f"it cannot be installed:\n{done.stdout}{done.stderr}"
    return ""


def tried(leveret: list[str], expect: str, folder: Path) -> str:
    """Return what does not work of the command, or nothing."""
    told = run([*leveret, "--version"], folder).stdout
    build = re.match(r"leveret \S+ \((pure|compiled), Python ", told)
    if build is None:
        return f"leveret --version says {told!r}"
    if expect and build[1] != expect:
        return f"it is {build[1]}, not {expect}"
    return served(leveret, folder)


def served(leveret: list[str], folder: Path) -> str:
    """Return what a broker of the package does not do, or nothing."""
    ports = ["--port", "0", "--http-port", "0", "--metrics-port", "0"]
    command = [*leveret, "serve", *ports, "--data-dir", str(folder / "data")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder,
        env=environment(),
    ) as broker:  # fmt: skip
        assert broker.stdout is not None
        try:
            said = broker.stdout.readline()
            if not said.startswith("listening on "):
                return f"the broker does not start: {said!r}"
            uri = f"amqp://guest:guest@{said.strip().partition('://')[2]}/%2F"
            for arguments, wanted in (
                (["declare", "queue", "tried"], "tried\n"),
                (["publish", "tried", "a message"], ""),
                (["get", "tried"], "a message\n"),
            ):
                done = run([*leveret, "--uri", uri, *arguments], folder)
                if (done.returncode, done.stdout) != (0, wanted):
                    return f"leveret {' '.join(arguments)}: {done.stdout}{done.stderr}"
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.stdout.read()
    return "" if broker.returncode == 0 else f"the broker ends with {broker.returncode}"


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=SECONDS_MAX,
        env=environment(),
    )  # fmt: skip


def environment() -> dict[str, str]:
    """Return the environment without what says something of another Leveret."""
    kept = ("LEVERET_PURE", "LEVERET_REQUIRE_COMPILED")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LEVERET_", "PYTHON")) or name in kept
    }


if __name__ == "__main__":
    sys.exit(main())
