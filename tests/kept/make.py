"""Makes a data directory and Spark checkpoints that every later build must open.

    git worktree add /tmp/older 06a8cc1 && make -C /tmp/older setup
    /tmp/older/.venv/bin/python tests/kept/make.py 06a8cc1

Run by the Python of an older build, with its Spark, it writes `tests/kept/<name>.zip` and, beside
it, the manifest `<name>.json`: what must be found there.  The zip holds two directories, `stopped`
and `killed` by how their broker ended, each with its data and the checkpoints of two queries.

The manifest is what the same build reads in a copy, once it agrees with what was sent.  It takes
some three minutes, most of them for messages to become due while no broker runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if __name__ == "__main__":
    # The helpers that all tests share lie one folder up.
    sys.path[0] = str(Path(__file__).parents[1])

import leveret.spark
from kept.filling import SETTINGS, Sent, fill, finish
from kept.querying import ONE, SALES, TWO, query_half
from kept.reading import await_due, bodies_digest, drain, look
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import run_leveret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE: Final = Path(__file__).parent

#: Of all files in the zip, so that one made again differs only where it does.
ZIP_TIME: Final = (2026, 1, 1, 0, 0, 0)

#: What a data directory has when there is something of each kind in it.
FOLDERS: Final = ("journal", "segments", "state")

#: Queues whose bodies are not those that were sent, in their order: they drop, sort or share.
APART: Final = {"mortal", "deep priorities", "expiring"}

#: How many messages those have.
COUNTS: Final = {
    "/ mortal": 2,
    "/ letters": 8,
    "/ deep priorities": 9 * 4 * 20,
    "/ expiring": 3,
    "/ expired letters": 5,
    "/ due": 4,
    "/ narrow": 5,
    "/ late history": 4,
    "/ copied": ONE[1] + TWO[1],
    "/ sold": SALES[0],
}


def make(spark: SparkSession, place: Path, *, killed: bool) -> dict[str, Any]:
    """Make one directory; return what must be found in it."""
    data, checkpoints = place / "data", place / "checkpoints"
    with BrokerProcess(data, settings=SETTINGS) as broker:
        sent = fill(broker)
        query_half(spark, broker, checkpoints, sent)
        held = finish(broker, sent)
        if killed:
            broker.kill()
        else:
            assert broker.terminate() == 0
        held.connection.abort()
    (data / "management.sock").unlink(missing_ok=True)
    checked = run_leveret("store", "check", "--json", data)
    assert checked.returncode == 0, checked
    assert all(any(data.glob(f"{folder}/*")) for folder in FOLDERS), sorted(data.rglob("*"))
    copy = place.parent.parent / "copy"
    shutil.copytree(data, copy)
    with BrokerProcess(copy, settings=SETTINGS) as broker:
        await_due(broker)
        looked = look(broker)
        drained = drain(broker, looked["queues"])
    shutil.rmtree(copy)
    check(sent, drained)
    return {"looked": looked, "drained": drained}


def check(sent: Sent, drained: dict[str, Any]) -> None:
    """Hold what was read against what was sent."""
    for (vhost, queue), bodies in sent.items():
        found = drained[f"{vhost} {queue}"]
        if queue not in APART:
            assert found["count"] == len(bodies), (queue, found["count"], len(bodies))
            assert found["bodies"] == bodies_digest(bodies), queue
    counts = {name: row["count"] for name, row in drained.items() if name in COUNTS}
    assert counts == COUNTS, counts


def pack(place: Path, file: Path) -> None:
    """Write a directory to a zip."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as packed:
        for path in sorted(place.rglob("*")):
            name = str(path.relative_to(place)) + ("/" if path.is_dir() else "")
            entry = zipfile.ZipInfo(name, ZIP_TIME)
            entry.external_attr = path.stat().st_mode << 16
            entry.compress_type = zipfile.ZIP_LZMA
            packed.writestr(entry, b"" if path.is_dir() else path.read_bytes())


def main() -> int:
    """Make both directories, the zip and the manifest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="what the files are called: the build's commit")
    name: str = parser.parse_args().name
    build = run_leveret("--version").stdout.decode().strip()
    manifest: dict[str, Any] = {"build": build}
    spark = leveret.spark.session("kept", master="local[2]", fast=True)
    with tempfile.TemporaryDirectory(prefix="leveret-kept-") as temporary:
        for end in ("stopped", "killed"):
            place = Path(temporary) / "packed" / end
            place.mkdir(parents=True)
            manifest[end] = make(spark, place, killed=end == "killed")
        pack(Path(temporary) / "packed", HERE / f"{name}.zip")
    spark.stop()
    text = json.dumps(manifest, indent=1, sort_keys=True)
    (HERE / f"{name}.json").write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
