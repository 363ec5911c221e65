"""Pictures of the command line: what each command prints on a terminal of 80 columns.

    PYTHONPATH=src:tests python -m support.commands.pictures     # draw all of them again

All commands run in one process on one terminal, without a broker: with `--help`, and without
arguments.  `tests/cli/pictures` has a file for each group.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from support.commands.terminal import Terminal

PICTURES: Final = Path(__file__).parents[2] / "cli" / "pictures"
COLUMNS: Final = 80

#: Commands that begin to work without arguments, or print a manual page, which is help again.
WORKING: Final = (("serve",), ("demo",), ("pipeline", "lifecycle"), ("man",))

#: In front of the output of a command line.
_PROMPT: Final = "$ leveret"

#: No broker answers at this URI; the caller's contexts and locale have no effect.
_ENVIRONMENT: Final = {
    "LEVERET_URI": "amqp://127.0.0.1:1",
    "XDG_CONFIG_HOME": "/nowhere",
    "LANG": "C.UTF-8",
    "PYTHONPATH": os.pathsep.join(sys.path),
}


def draw() -> dict[str, str]:
    """Return the pictures by the names of their files, drawn in a new process."""
    with tempfile.TemporaryDirectory() as directory:
        words = [
            sys.executable,
            "-c",
            f"from support.commands.pictures import run_all; run_all({directory!r})",
        ]
        with Terminal(words, _ENVIRONMENT, columns=COLUMNS) as terminal:
            assert terminal.wait() == 0, terminal.screen
            text = terminal.screen.replace("\r\n", "\n")
    files: dict[str, str] = {}
    for part in text.split(_PROMPT)[1:]:
        words = part.split("\n", 1)[0].split()
        files[f"{_file_of(words)}.txt"] = files.get(f"{_file_of(words)}.txt", "") + _PROMPT + part
    return files


def _file_of(words: list[str]) -> str:
    """Return the name of the file for a command line: its first word, if it is a command."""
    return words[0] if words and not words[0].startswith("-") else "leveret"


def run_all(directory: str) -> None:
    """Run all command lines in this process, each after a line with itself."""
    from leveret.cli.root import app, command_of

    os.chdir(directory)
    # Made once: `app()` would make all commands again for each line.
    leveret = command_of(app)
    for words in _lines(leveret):
        _write(" ".join((_PROMPT, *words)) + "\n")
        try:
            leveret.main(words, prog_name="leveret")
        except SystemExit as end:
            _write(f"[{end.code}]\n\n")


def _write(text: str) -> None:
    """Write a line between the outputs of commands."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _lines(command: Any, *words: str) -> Iterator[list[str]]:
    """Yield the command lines for a command and all below it."""
    yield [*words, "--help"]
    if words not in WORKING:
        yield [*words]
    for name in getattr(command, "commands", {}):
        yield from _lines(command.commands[name], *words, name)


def main() -> None:
    """Draw all pictures again."""
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.iterdir():
        old.unlink()
    for name, text in draw().items():
        (PICTURES / name).write_text(text)


if __name__ == "__main__":
    main()
