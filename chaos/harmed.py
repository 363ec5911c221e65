"""Many harmed copies of one specimen, each booted, read and judged; every 64th by `leveret serve`.

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

from chaos.board import Row
from chaos.forks import booted, prepare, started
from chaos.harm import MISSING, Harm, is_boundary, may_cost
from chaos.judging import Verdict, judge
from chaos.specimen import Specimen, copied

#: One boot of so many is one of a process with an interpreter of its own.
WHOLE_EACH: Final = 64

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

    def __init__(self, specimen: Specimen) -> None:
        self.specimen = specimen
        self.unharmed: dict[str, bytes] = {}

    def __call__(self, numbered: tuple[int, Harm]) -> tuple[Harm, Verdict, set[str]]:
        """Harm a copy, boot it, read it; return the verdict and what was lost too much."""
        number, harm = numbered
        whole = number % WHOLE_EACH == 0
        specimen = self.specimen
        copy = specimen.directory.with_name(f"copy-{os.getpid()}")
        with copied(specimen, copy) as directory:
            harm.do(directory)
            boot_it = started if whole else booted
            try:
                with boot_it(directory, specimen.settings) as boot:
                    verdict = judge(specimen, boot, specimen.read(boot))
            except Exception as error:  # noqa: BLE001 (one bad image must not end the rest)
                verdict = Verdict(boots=False, problems=[f"{error!r}"])
            if verdict.reported and harm.path != "format" and not self._quarantined(directory):
                verdict.problems.append("nothing is in quarantine/")
        return harm, verdict, self.too_much(harm, verdict)

    def too_much(self, harm: Harm, verdict: Verdict) -> set[str]:
        """Return what was lost beyond the costs of a harm; what looks like no harm needs no report.

        That is a cut between two groups, and a newest journal file that is gone as a whole: what
        is left is what a crash a moment earlier would have left.
        """
        data = self.data(harm.path)
        newest = max((self.specimen.directory / "journal").iterdir()).name
        if is_boundary(harm, data) or (harm.kind == MISSING and harm.path.endswith(newest)):
            silent = "it changed and nothing was reported"
            verdict.problems = [problem for problem in verdict.problems if problem != silent]
        lost = {id_ for _, id_ in verdict.lost}
        allowed, count = may_cost(self.specimen, harm, data)
        return lost if len(lost & allowed) > count else lost - allowed

    def data(self, path: str) -> bytes:
        """Return the bytes of an unharmed file."""
        if path not in self.unharmed:
            self.unharmed[path] = (self.specimen.directory / path).read_bytes()
        return self.unharmed[path]

    @staticmethod
    def _quarantined(directory: Path) -> bool:
        return any((directory / "quarantine").iterdir())


def try_all(specimen: Specimen, harms: Sequence[Harm], say: Callable[[str], None]) -> Tally:
    """Try every harm on a copy of its own; say how it goes."""
    tally = Tally()
    prepare()
    context = multiprocessing.get_context("fork")
    with context.Pool(workers()) as pool:
        results = pool.imap_unordered(Trial(specimen), list(enumerate(harms, 1)), chunksize=16)
        for harm, verdict, too_much in results:
            tally.add(harm, verdict, too_much)
            if tally.runs % SAY_EACH == 0:
                say(f"{tally.runs:,} of {len(harms):,}")
    for told in tally.told:
        say(told)
    return tally
