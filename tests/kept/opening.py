"""Copies of the kept directories, to be opened by the build that is installed."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kept.declared import LONG_MS
from kept.filling import SETTINGS
from support.brokers.broker_process import BrokerProcess

HERE: Final = Path(__file__).parent

#: What is kept: the names of the builds that made it, by how their brokers ended.  An archive
#: without a manifest is a specimen of another test.
ENDS: Final = ("stopped", "killed")
KEPT: Final = [(path.stem, end) for path in sorted(HERE.glob("*.json")) for end in ENDS]
IDS: Final = [f"{name}-{end}" for name, end in KEPT]


@dataclass(frozen=True)
class Kept:
    """A copy of a kept directory, and what must be found in it."""

    data: Path
    checkpoints: Path
    looked: dict[str, Any]
    drained: dict[str, Any]

    def broker(self) -> BrokerProcess:
        """Return a broker for it, not started; publishers and sinks are never too old for it."""
        settings = SETTINGS | {"publisher_expiry_ms": str(LONG_MS)}
        return BrokerProcess(self.data, settings=settings)


def unpack(name: str, end: str, to: Path) -> Kept:
    """Return a copy of one of them, made in an empty directory."""
    manifest = json.loads((HERE / f"{name}.json").read_text())[end]
    with zipfile.ZipFile(HERE / f"{name}.zip") as packed:
        members = [member for member in packed.namelist() if member.startswith(f"{end}/")]
        packed.extractall(to, members)
    place = to / end
    return Kept(place / "data", place / "checkpoints", manifest["looked"], manifest["drained"])
