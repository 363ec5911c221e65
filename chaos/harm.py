"""Harm to one file of a data directory, and what it may cost.

The costs are those of `docs/explanation/durability.md`: a record, a chunk or nothing, by what
was hit.  Where messages lie is found by the words in their bodies, not by the broker's own code.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.specimen import Specimen

CUT: Final = "cut"
FLIP: Final = "flip"
MISSING: Final = "missing"

CHUNK_MAGIC: Final = b"LVchunk3"
GROUP_MAGIC: Final = b"LVgroup2"
WORD: Final = re.compile(rb"<(m\d+)>")


@dataclass(frozen=True)
class Harm:
    """What is done to a file: cut at byte `at`, one `bit` of that byte turned, or removed."""

    kind: str
    path: str
    at: int = 0
    bit: int = 0

    def __str__(self) -> str:
        place = "" if self.kind == MISSING else f" at {self.at}"
        return f"{self.path} {self.kind}{place}" + (f".{self.bit}" if self.kind == FLIP else "")

    def on(self, data: bytes) -> bytes:
        """Return the bytes of the file when it is harmed (not for one that is missing)."""
        if self.kind == CUT:
            return data[: self.at]
        return data[: self.at] + bytes([data[self.at] ^ 1 << self.bit]) + data[self.at + 1 :]

    def do(self, directory: Path) -> None:
        """Harm the file in a directory."""
        path = directory / self.path
        if self.kind == MISSING:
            path.unlink()
            return
        path.write_bytes(self.on(path.read_bytes()))


def words(data: bytes) -> set[str]:
    """Return the ids of the messages whose words are in `data`."""
    return {found.decode() for found in WORD.findall(data)}


def may_cost(specimen: Specimen, harm: Harm, data: bytes) -> tuple[set[str], int]:
    """Return which messages a harm may cost, and at most how many of them; `data` was unharmed."""
    folder = harm.path.partition("/")[0]
    if folder == "segments":
        return _in_chunks(harm, data)
    if folder != "journal":
        return set(), 0
    if harm.kind == FLIP:
        hit = _record_of(specimen, data, harm.at)
        return hit, len(hit)
    kept = b"" if harm.kind == MISSING else data[: harm.at]
    cost = words(data) - _whole(kept)
    for transaction in specimen.transactions:
        if transaction & cost:
            cost |= transaction
    return cost, len(cost)


def _record_of(specimen: Specimen, data: bytes, at: int) -> set[str]:
    """Return the messages of the record that a place is in: the one whose end comes next.

    A record ends with its message's body; a transaction's holds several messages.
    """
    for found in WORD.finditer(data, max(0, at - 7)):
        id_ = found[1].decode()
        if found.end() > at and _ends(data, found):
            hit = {id_}
            for transaction in specimen.transactions:
                if id_ in transaction:
                    hit |= transaction
            return hit
    return set()


def _ends(data: bytes, found: re.Match[bytes]) -> bool:
    """Tell whether a word is the one at the end of its body."""
    return data.find(found[0], 0, found.start()) >= 0


def _whole(data: bytes) -> set[str]:
    """Return the ids of the messages that end in `data`: a body ends as it begins."""
    counts: dict[str, int] = {}
    for found in WORD.findall(data):
        counts[found.decode()] = counts.get(found.decode(), 0) + 1
    return {id_ for id_, count in counts.items() if count >= 2}


def _in_chunks(harm: Harm, data: bytes) -> tuple[set[str], int]:
    """Return what the chunks that are hit hold; of one bit behind its columns one message."""
    starts = [found.start() for found in re.finditer(CHUNK_MAGIC, data)]
    cost: set[str] = set()
    ends = [*starts[1:], len(data)]
    for start, end in zip(starts, ends, strict=False):
        hit = harm.kind == MISSING or (
            end > harm.at if harm.kind == CUT else start <= harm.at < end
        )
        if hit:
            cost |= words(data[start:end])
            if harm.kind == FLIP and harm.at - start >= _columns_end(data[start:end]):
                return cost, 1
    return cost, len(cost)


def _columns_end(chunk: bytes) -> int:
    """Return where the properties of a chunk begin (`leveret/chunk.py` draws its header)."""
    properties, bodies, whole = struct.unpack_from("<QQQ", chunk, 80)
    return int(whole - _padded(properties) - _padded(bodies))


def _padded(size: int) -> int:
    return (size + 7) // 8 * 8


def is_boundary(harm: Harm, data: bytes) -> bool:
    """Tell whether a cut leaves whole groups only: nobody can tell that from a crash."""
    rest = data[harm.at :]
    return harm.kind == CUT and (not rest or rest.startswith(GROUP_MAGIC))
