"""Many harmed copies of one specimen, each booted, read and judged, in one of three ways.

Most are booted by the core alone on a disk in memory, every 16th by a forked child that runs the
whole broker on a copy of the directory, and every 256th by `leveret serve`.  Where there are few,
all are booted by children at least.

The copies lie in memory (`/dev/shm`, where it is there): it is the bytes that count here, not the
disk.  `CHAOS_WORKERS` says how many processes share the work, by default one for each core.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos import in_memory
from chaos.board import Row
from chaos.forks import booted, prepare, started
from chaos.harm import MISSING, Harm, is_boundary, may_cost
from chaos.judging import Verdict, judge
from chaos.specimen import WINDOW_BYTES, Specimen, copied
from leveret.store.disks.recording import Image

#: One boot of so many is by a child with a directory and sockets, and by a process of its own.
FORKED_EACH: Final = 16
WHOLE_EACH: Final = 256

#: After so many chunks of work a worker makes room for a new one: it keeps about a megabyte of
#: each boot.
WORKER_TASKS: Final = 16

#: Up to so many, all are booted by children at least.
FEW: Final = 2000

#: A word on the way after so many boots.
SAY_EACH: Final = 2000

#: Violations that are told one by one.
TOLD_MAX: Final = 20


@dataclass
class Tally:
    """The sum of many verdicts."""

    runs: int = 0
    boots: int = 0
    harmless: int = 0
    reported: int = 0
    lost_allowed: int = 0
    returned: int = 0
    lost: int = 0
    phantom: int = 0
    altered: int = 0
    violations: int = 0
    told: list[str] = field(default_factory=list)

    def add(self, harm: Harm, verdict: Verdict, too_much: set[str]) -> None:
        """Add a verdict; `too_much` is what was lost beyond what the harm may cost."""
        self.runs += 1
        self.boots += verdict.boots
        self.harmless += not verdict.changed
        self.reported += verdict.reported
        self.returned += len(verdict.returned)
        self.lost += len(too_much)
        self.lost_allowed += len({id_ for _, id_ in verdict.lost}) - len(too_much)
        self.phantom += verdict.phantom
        self.altered += verdict.altered
        self.violations += len(verdict.problems)
        wrong = [*verdict.problems, *([f"lost {sorted(too_much)}"] if too_much else [])]
        if verdict.phantom or verdict.altered:
            wrong.append(f"{verdict.phantom} phantom, {verdict.altered} altered")
        if (wrong or not verdict.boots) and len(self.told) < TOLD_MAX:
            self.told.append(f"{harm}: {'; '.join(wrong)[:2000]}")

    def row(self, name: str, specimen: Specimen) -> Row:
        """Return the line of the scoreboard."""
        note = (
            f"{self.reported:,} reported, {self.harmless:,} changed nothing, "
            f"{self.lost_allowed:,} hit messages gone, {self.returned:,} acked ones back"
        )
        return Row(
            name, self.runs, self.boots, specimen.confirmed * self.runs,
            self.lost, self.phantom, self.altered, self.violations, note=note,
        )  # fmt: skip


def scratch() -> Path:
    """Return a new directory in memory."""
    shared = Path("/dev/shm")  # noqa: S108 (a file system in memory, by its name)
    return Path(tempfile.mkdtemp(prefix="leveret-chaos-", dir=shared if shared.is_dir() else None))


def workers() -> int:
    """Return how many processes share the work."""
    return int(os.environ.get("CHAOS_WORKERS", "0")) or os.cpu_count() or 1


class Trial:
    """Tries harms on copies of a specimen; one for each worker process."""

    def __init__(self, specimen: Specimen, *, few: bool) -> None:
        self.specimen = specimen
        self.few = few
        self.image = in_memory.image_of(specimen)

    def __call__(self, numbered: tuple[int, Harm]) -> tuple[Harm, Verdict, set[str]]:
        """Harm a copy, boot it, read it; return the verdict and what was lost too much."""
        number, harm = numbered
        try:
            if self.few or number % FORKED_EACH == 0:
                verdict = self._on_copy(harm, whole=number % WHOLE_EACH == 0)
            else:
                verdict = self._in_memory(harm)
        except Exception as error:  # noqa: BLE001 (one bad image must not end the rest)
            verdict = Verdict(boots=False, problems=[f"{error!r}"])
        return harm, verdict, self.too_much(harm, verdict)

    def _on_copy(self, harm: Harm, *, whole: bool) -> Verdict:
        """Boot a harmed copy of the directory by a child, or by a process of its own."""
        specimen = self.specimen
        copy = specimen.directory.with_name(f"copy-{os.getpid()}")
        with copied(specimen, copy) as directory:
            harm.do(directory)
            boot_it = started if whole else booted
            with boot_it(directory, specimen.settings) as boot:
                verdict = judge(specimen, boot, specimen.read(boot))
            kept = any((directory / "quarantine").iterdir())
        return self._need_copy(harm, verdict, kept=kept)

    def _in_memory(self, harm: Harm) -> Verdict:
        """Boot the core on a harmed image."""
        files = dict(self.image.files)
        data = files.pop(harm.path)
        if harm.kind != MISSING:
            files[harm.path] = harm.on(data)
        boot, reading, kept = in_memory.boot(Image(files, self.image.folders), WINDOW_BYTES)
        return self._need_copy(harm, judge(self.specimen, boot, reading, said_all=True), kept=kept)

    @staticmethod
    def _need_copy(harm: Harm, verdict: Verdict, *, kept: bool) -> Verdict:
        """Miss a copy of what was damaged: only a format's other copy is as good as one."""
        if verdict.reported and harm.path != "format" and not kept:
            verdict.problems.append("nothing is in quarantine/")
        return verdict

    def too_much(self, harm: Harm, verdict: Verdict) -> set[str]:
        """Return what was lost beyond the costs of a harm; what looks like no harm needs no report.

        That is a cut between two groups, and a newest journal file that is gone as a whole: what
        is left is what a crash a moment earlier would have left.
        """
        data = self.image.files[harm.path]
        newest = max(path for path in self.image.files if path.startswith("journal/"))
        if is_boundary(harm, data) or (harm.kind == MISSING and harm.path == newest):
            silent = "it changed and nothing was reported"
            verdict.problems = [problem for problem in verdict.problems if problem != silent]
        if verdict.returned and not harm.path.startswith("journal/"):
            # Acks lie in the journal, and twice where a snapshot has them.
            verdict.problems.append(f"acked messages came back: {sorted(verdict.returned)}")
        lost = {id_ for _, id_ in verdict.lost}
        allowed, count = may_cost(self.specimen, harm, data)
        return lost if len(lost & allowed) > count else lost - allowed


def try_all(specimen: Specimen, harms: Sequence[Harm], say: Callable[[str], None]) -> Tally:
    """Try every harm on a copy of its own; say how it goes."""
    tally = Tally()
    prepare()
    context = multiprocessing.get_context("fork")
    with context.Pool(workers(), maxtasksperchild=WORKER_TASKS) as pool:
        trial = Trial(specimen, few=len(harms) <= FEW)
        results = pool.imap_unordered(trial, list(enumerate(harms, 1)), chunksize=16)
        for harm, verdict, too_much in results:
            tally.add(harm, verdict, too_much)
            if tally.runs % SAY_EACH == 0:
                say(f"{tally.runs:,} of {len(harms):,}")
    for told in tally.told:
        say(told)
    return tally
