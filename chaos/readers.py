"""Flipped bytes, and the four readers of a directory: a start, reads, check and salvage (R6).

Most cases run in one process: the real code of store and core, on disks in memory.  Each 250th
starts a broker on a copy of a directory, and runs `leveret store check` and `leveret store
salvage`.  The cases damage a journal record, a chunk, a snapshot, several of them, or both
generations of snapshots.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos.board import Row
from chaos.harmed import TOLD_MAX, WORKER_TASKS, scratch, workers
from leveret.store.disks.recording import Image
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import run_leveret
from support.store.flipped_disk import (
    FLIP_BYTES,
    HARMS,
    Flip,
    Specimen,
    differences,
    flipped,
    flips,
    running_differences,
    specimen,
)
from support.wire import raw
from support.wire.raw_codec import method

NAME: Final = "readers"
RUNS: Final = 5_000

#: How many directories are damaged in turn.
SPECIMENS: Final = 8

#: One of so many cases runs in processes.
WHOLE_EACH: Final = 250


class Trial:
    """Damages copies; one for each worker process."""

    def __init__(self, seed: int, base: Path) -> None:
        self.seed = seed
        self.base = base
        self._made: dict[int, Specimen] = {}

    def __call__(self, number: int) -> tuple[int, int, list[str]]:
        """Try one case; return its number, how much was held, and the differences."""
        chance = random.Random(self.seed * 1_000_003 + number)
        made = self.made(number % SPECIMENS)
        folders, count = HARMS[number % len(HARMS)]
        harms = flips(made, chance, folders, count, chance.choice((1, FLIP_BYTES, FLIP_BYTES)))
        held = sum(queue.total() for queue in made.held.values())
        try:
            found = list(differences(made, harms))
            if folders == ("segments",):
                found += running_differences(made, harms)
            if number % WHOLE_EACH == 0:
                found += processes_differ(made, harms, self.base / str(number))
        except Exception as error:  # noqa: BLE001 (one bad case must not end the rest)
            found = [repr(error)]
        return number, held, [f"{harms}: {one}" for one in found]

    def made(self, place: int) -> Specimen:
        """Return one of the directories."""
        if place not in self._made:
            self._made[place] = specimen(self.seed * SPECIMENS + place)
        return self._made[place]


def processes_differ(made: Specimen, harms: list[Flip], base: Path) -> list[str]:
    """Return where a broker, `store check` and `store salvage` disagree on a damaged copy."""
    damaged, saved = base / "damaged", base / "saved"
    write(flipped(made.image, harms), damaged)
    try:
        checked = json.loads(run_leveret("store", "check", damaged, "--json").stdout)
        run_leveret("store", "salvage", damaged, "--to", saved)
        got, salvaged = drained(damaged), drained(saved)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    found = [f"{queue}: not the same" for queue in got | salvaged
             if got.get(queue) != salvaged.get(queue)]  # fmt: skip
    counted = {row["name"]: row["messages"] for row in checked["queues"] if row["name"] in got}
    return found + [
        f"{queue}: check counts {count}, the broker gives {got[queue].total()}"
        for queue, count in counted.items()
        if count != got[queue].total()
    ]


def write(image: Image, directory: Path) -> None:
    """Write an image as a directory."""
    for folder in image.folders:
        (directory / folder).mkdir(parents=True, exist_ok=True)
    for path, data in image.files.items():
        (directory / path).write_bytes(data)


def drained(directory: Path) -> dict[str, Counter[bytes]]:
    """Return the messages of all classic queues of a directory, by a broker of its own."""
    found: dict[str, Counter[bytes]] = {}
    checked = json.loads(run_leveret("store", "check", directory, "--json").stdout)
    names = [row["name"] or f"leveret.recovered.{row['id']}" for row in checked["queues"]
             if row["type"] == "classic"]  # fmt: skip
    settings = {"queue_window_bytes": "3000", "ballast_bytes": "0"}
    with BrokerProcess(directory, settings=settings) as broker, raw.connect(broker.uri) as peer:
        channel = peer.open_channel(1)
        for name in names:
            bodies: Counter[bytes] = Counter()
            while (got := peer.get(channel, name, no_ack=True)) is not None:
                bodies[got.body] += 1
            found[name] = bodies
        peer.send(method(channel, "channel.close", code=200))
    return found


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Try so many cases; each difference is a violation."""
    base = scratch()
    confirmed = bad = 0
    try:
        context = multiprocessing.get_context("fork")
        with context.Pool(workers(), maxtasksperchild=WORKER_TASKS) as pool:
            results = pool.imap_unordered(Trial(seed, base), range(runs), chunksize=32)
            for number, held, found in results:
                confirmed += held
                bad += len(found)
                for told in found[:TOLD_MAX]:
                    say(f"case {number}: {told[:2000]}")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    whole = (runs + WHOLE_EACH - 1) // WHOLE_EACH
    note = f"{bad} differences between start, read, check and salvage; {whole} by processes"
    return [Row(NAME, runs, runs, confirmed, 0, 0, 0, bad, note=note)]
