"""The ledger of a crash test: attempts and confirms, on disk before the next step.

Each entry is one write to a file opened with `O_DSYNC`, so it is on disk when `note` returns, and
before any later action of the broker.

An entry is a line: a mark, then words.

    T id …       a publish or a transaction is about to be sent
    C id …       confirmed (or committed)
    A queue id … acks that are about to be sent
    D queue id … acks that a later confirm on the same connection made durable
    + name       a declare is about to be sent;  +ok  its reply came
    - name       a delete is about to be sent;   -ok  its reply came
    K …          the broker was killed;  V …  verified after a restart
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self


class Ledger:
    """An open ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DSYNC | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._descriptor)

    def note(self, mark: str, *words: str) -> None:
        """Write one entry; it is on the disk when this returns."""
        line = " ".join((mark, *words)).encode() + b"\n"
        assert os.write(self._descriptor, line) == len(line)

    def about(self, word: str) -> str:
        """The entries that contain a word, with their numbers, for failure messages."""
        lines = self.path.read_text().splitlines()
        found = [f"{n}: {line}" for n, line in enumerate(lines, 1) if word in line.split()]
        return f"{self.path} ({len(lines)} entries), of {word}:\n" + "\n".join(found)
