"""Directories that a broker must not touch: another's, a later release's, somebody else's.

A start on one is refused with a clear word, and every byte, mode and name stays as it was.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from xxhash import xxh3_64_digest

from chaos.board import Row
from chaos.harmed import scratch
from chaos.missing import contents, refusal
from chaos.specimen import Specimen, copied, made
from support.brokers.broker_process import BrokerProcess
from support.wire import raw

NAME: Final = "refusals"
RUNS: Final = 3

#: Where the two copies of the format's block lie, how long one is, and where its version is.
BLOCKS: Final = (0, 4096)
BLOCK_BYTES: Final = 56
VERSION_AT: Final = 8


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Try each refusal so many times, each time on another directory."""
    wrong: dict[str, int] = dict.fromkeys(CASES, 0)
    confirmed = 0
    for number in range(runs):
        base = scratch()
        try:
            with made(base, seed + number) as specimen:
                confirmed += specimen.confirmed
                for name, case in CASES.items():
                    if problem := case(specimen):
                        say(f"{name}: {problem}")
                        wrong[name] += 1
        finally:
            shutil.rmtree(base, ignore_errors=True)
    return [
        Row(f"refused: {name}", runs, runs, confirmed, 0, 0, 0, count, note="untouched")
        for name, count in wrong.items()
    ]


def two_brokers(specimen: Specimen) -> str:
    """A second broker on the directory of one that runs."""
    with (
        copied(specimen, specimen.directory.with_name("copy")) as directory,
        BrokerProcess(directory, settings=specimen.settings) as first,
        raw.connect(first.uri) as connection,
    ):
        connection.open_channel(1)
        connection.sync(1)
        problem = _refused(directory, f"is in use by process {first.pid}")
        got = connection.get(1, "plain")
        if got is None:
            return "the first broker does not serve any more"
        return problem


def later_version(specimen: Specimen) -> str:
    """A directory of a layout that is not known yet, whose checksums are right."""
    with copied(specimen, specimen.directory.with_name("copy")) as directory:
        path = directory / "format"
        data = bytearray(path.read_bytes())
        for start in BLOCKS:
            struct.pack_into("<I", data, start + VERSION_AT, 99)
            end = start + BLOCK_BYTES
            data[end : end + 8] = xxh3_64_digest(bytes(data[start:end]))
        path.write_bytes(data)
        shutil.rmtree(directory / "quarantine")
        return _refused(directory, "layout 99 is not supported")


def damaged_format(specimen: Specimen) -> str:
    """A directory of which both copies of the format are damaged."""
    with copied(specimen, specimen.directory.with_name("copy")) as directory:
        path = directory / "format"
        data = bytearray(path.read_bytes())
        for start in BLOCKS:
            data[start] ^= 1
        path.write_bytes(data)
        return _refused(directory, "both copies of the format file are damaged")


def foreign(specimen: Specimen) -> str:
    """A directory with somebody's files in it."""
    directory = specimen.directory.with_name("foreign")
    (directory / "photos").mkdir(parents=True)
    try:
        (directory / "notes.txt").write_text("mine")
        (directory / "photos" / "one.jpg").write_bytes(b"\xff\xd8")
        return _refused(directory, "not a broker's directory")
    finally:
        shutil.rmtree(directory)


def _refused(directory: Path, word: str) -> str:
    """Start on a directory; return what is wrong with its refusal, nothing if it is right."""
    before = contents(directory)
    said = refusal(directory)
    if not said:
        return "it started"
    if word not in said:
        return f"it does not say {word!r}: {said}"
    after = contents(directory)
    changed = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
    return f"changed: {changed}" if changed else ""


CASES: Final[dict[str, Callable[[Specimen], str]]] = {
    "a second broker": two_brokers,
    "a later layout": later_version,
    "a damaged format": damaged_format,
    "a foreign directory": foreign,
}
