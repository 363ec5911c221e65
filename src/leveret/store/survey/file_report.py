"""The report of a survey on one file of a data directory."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.store.damage import Damage


@final
class FileReport:
    """The report on one file.  `kind` is `format`, `state`, `journal` or `segments`.

    `records` counts intact records, or messages in chunks.  `live` counts live messages, for a
    journal only those in no chunk.  `dead` counts messages in chunks that no queue needs.  `needed`
    is true if the next start needs the file.
    """

    def __init__(self, path: str, kind: str, size: i64) -> None:
        self.path: Final = path
        self.kind: Final = kind
        self.bytes: Final[i64] = size
        self.records: i64 = 0
        self.groups: i64 = 0
        self.chunks: i64 = 0
        self.live: i64 = 0
        self.live_bytes: i64 = 0
        self.dead: i64 = 0
        self.needed = False
        self.damages: list[Damage] = []
