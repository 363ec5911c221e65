"""The replayer: lives of the core, every crash state of each, and the judgement of each state.

A run of a load and a seed is a chain of lives: the first begins on an empty disk, each later one on
a state that a crash of the one before could have left.  Of each life some or all points of its
trace are taken; at each point some crash states are built, recovered and judged; of some the
recovery is cut off again, and of some a byte is changed.

Invariant: a state is made by load, seed, life, point and number alone, so that one is found again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from leveret.store.disks.recording import CrashModel, CrashState, Image, RecordingDisk
from leveret.store.format import JOURNAL_DIR, SEGMENTS_DIR
from replay.account import Content, Holding
from replay.drain import drain
from replay.drive import PLAIN_LIFE, Life
from replay.found import Found, left_out, recovered
from replay.judge import judge
from replay.ledger import judge_ledger
from replay.loads import LOADS

#: Problems after which no more are looked for.
PROBLEMS_MAX = 5

#: Drawn states at each point, beside the four corners.
DRAWN = 3

#: Of how many states one is recovered again after a crash inside its recovery; of as many one has
#: a bit changed, and one is drained.
AGAIN_ONE_IN = 25


@dataclass(frozen=True)
class Where:
    """What makes a state."""

    load: str
    seed: int
    steps: int
    mode: str
    life: int
    point: int = -1

    def command(self) -> str:
        """Return what makes it once more."""
        text = f"python tests/replay/runs.py --load {self.load} --seed {self.seed}"
        text += f" --steps {self.steps} --life {self.life}" + f" --mode {self.mode}"
        return text + (f" --point {self.point}" if self.point >= 0 else "")


@dataclass
class Counts:
    """What was looked at.  `states` are distinct images that were recovered and judged."""

    lives: int = 0
    points: int = 0
    states: int = 0
    judged: int = 0
    second: int = 0
    hit: int = 0
    drained: int = 0
    failures: int = 0
    confirmed: int = 0
    damaged: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        """Add another's."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def told(self) -> str:
        """Return the counts in a line."""
        return (
            f"{self.lives} lives ({self.failures} ended by the disk), {self.points:,} points, "
            f"{self.states:,} states recovered and judged ({self.judged:,} with repeats), "
            f"{self.second:,} after a second crash, {self.hit:,} with a bit changed, "
            f"{self.drained:,} drained, {self.confirmed:,} confirmed, {len(self.problems)} problems"
        )


class Run:
    """One load and one seed; `choose(points)` says which points of a life are looked at."""

    def __init__(
        self,
        load: str,
        seed: int,
        steps: int,
        choose: Callable[[int], set[int] | None],
        mode: str = PLAIN_LIFE,
    ) -> None:
        self.load = load
        self.mode = mode
        self.seed = seed
        self.steps = steps
        self.choose = choose
        self.counts = Counts()
        self.known: set[Content] = set()

    def lives(self, number: int) -> Iterator[tuple[int, Life]]:
        """Live so many lives, one after the other, each on what a crash left of the last."""
        image: Image | None = None
        start, last = Holding(), None
        for life_number in range(number):
            name = f"{self.load}/{self.seed}/{life_number}"
            acts = LOADS[self.load].begin(name, image, start, self.mode)
            if last is not None:
                acts.go_on_from(last)
            life = last = acts.live(self.steps)
            assert life.account is not None
            self.known |= life.account.contents()
            yield life_number, life
            chance = random.Random(f"{name}/next")
            image = some_crash(life, chance)
            start = recovered(image)[0].holding

    def check(self, number: int) -> Counts:
        """Judge so many lives and their crash states; return what was counted and found."""
        for life_number, life in self.lives(number):
            self.check_life(life_number, life)
            if self.counts.problems:
                break
        return self.counts

    def check_life(self, number: int, life: Life) -> None:
        """Judge one life: what its clients knew, then its crash states."""
        counts = self.counts
        counts.lives += 1
        counts.failures += life.failure is not None
        counts.confirmed += len(life.ledger.confirmed)
        assert life.account is not None
        told = judge_ledger(life.ledger, life.account, life.durable)
        where = Where(self.load, self.seed, self.steps, self.mode, number)
        counts.problems += [f"{problem}\n  {where.command()}" for problem in told[:PROBLEMS_MAX]]
        judge_points(life, where, self.choose(len(life.disk.trace)), counts, self.known)


def judge_points(
    life: Life, where: Where, points: set[int] | None, counts: Counts, known: set[Content]
) -> None:
    """Judge the states at some points of a life, or at all."""
    model = CrashModel(life.disk.start)
    judged = _Judged(life, where, counts, known)
    for operation in life.disk.trace:
        model.take(operation)
        if points is None or model.operations in points:
            judged.point(model)
        if len(counts.problems) > PROBLEMS_MAX:
            return


def judge_all(life: Life, choose: Callable[[int], set[int] | None]) -> list[str]:
    """Return what is wrong with the states of a life that stands alone."""
    assert life.account is not None
    counts = Counts()
    where = Where("alone", 0, 0, PLAIN_LIFE, 0)
    points = choose(len(life.disk.trace))
    judge_points(life, where, points, counts, life.account.contents())
    return counts.problems


class _Judged:
    """The states of one life.  An image that was met before is not recovered again."""

    def __init__(self, life: Life, where: Where, counts: Counts, known: set[Content]) -> None:
        self.life = life
        self.where = where
        self.counts = counts
        #: All messages that there ever were, on this disk and on those before it.
        self.known = known
        self.seen: dict[int, Found] = {}
        self._drains = where.load in LOADS and LOADS[where.load].drains

    def point(self, model: CrashModel) -> None:
        """Judge the states at one point."""
        point = model.operations
        where = self.where
        name = f"{where.load}/{where.seed}/{where.life}/{point}"
        chance = random.Random(name)
        self.counts.points += 1
        for number, state in enumerate(model.states(chance.randrange, DRAWN)):
            self.state(state, random.Random(f"{name}/{number}"))

    def state(self, state: CrashState, chance: random.Random) -> None:
        """Judge one state."""
        counts, life = self.counts, self.life
        key = hash((frozenset(state.image.files.items()), frozenset(state.image.folders)))
        found = self.seen.get(key)
        try:
            if found is None:
                found, disk = recovered(state.image, life.clock)
                self.seen[key] = found
                counts.states += 1
                if chance.randrange(AGAIN_ONE_IN) == 0:
                    self._again(state, found, disk, chance)
                if chance.randrange(AGAIN_ONE_IN) == 0:
                    self._hit(state, chance)
                if chance.randrange(AGAIN_ONE_IN) == 0:
                    self._note(state, left_out(state.image))
                if chance.randrange(AGAIN_ONE_IN) == 0 and self._drains:
                    self.counts.drained += 1
                    self._note(state, drain(state.image, found, self.life.clock))
        except Exception as error:  # noqa: BLE001 - a recovery that raises is a finding
            self._note(state, [f"I7 the recovery ended by {error!r}"])
            return
        counts.judged += 1
        self._note(state, self._judge(state, found))

    def _judge(self, state: CrashState, found: Found) -> list[str]:
        account = self.life.account
        assert account is not None
        durable = self.life.durable(state.operations)
        under_way = account.under_way(durable, state.operations)
        return judge(found, account.sure(durable), under_way)

    def _note(self, state: CrashState, problems: list[str]) -> None:
        if not problems:
            return
        where = replace(self.where, point=state.operations)
        text = f"after {state.operations} operations, in {self.life.step(state.operations)}, "
        text += f"with {state.what}:\n"
        text += "".join(f"  {problem}\n" for problem in problems)
        self.counts.problems.append(f"{text}  {where.command()}")

    # -- more than one misfortune ------------------------------------------------------------------

    def _again(
        self, state: CrashState, found: Found, disk: RecordingDisk, chance: random.Random
    ) -> None:
        """Cut the recovery off anywhere, and recover from that: it finds the same (I9)."""
        model = CrashModel(disk.start)
        for operation in disk.trace:
            model.take(operation)
            for second in model.states(chance.randrange, 1):
                self.counts.second += 1
                again, _ = recovered(second.image, self.life.clock)
                # What was found first is kept in the quarantine: then it is known, not new.
                if again.holding != found.holding or again.wrong or again.damages:
                    what = f"{second.what} after {second.operations} operations of the recovery"
                    same = "" if again.holding != found.holding else "nearly "
                    told = f"I9 a second crash, {what}, finds not {same}the same"
                    self._note(state, [told, *again.wrong, *again.damages])
                    return

    def _hit(self, state: CrashState, chance: random.Random) -> None:
        """Change one byte: it starts, nothing is altered, nothing comes from nowhere (I7, I2)."""
        paths = sorted(path for path, data in state.image.files.items() if data)
        if not paths:
            return
        path = chance.choice(paths)
        data = bytearray(state.image.files[path])
        place = chance.randrange(len(data))
        data[place] ^= 1 << chance.randrange(8)
        files = {**state.image.files, path: bytes(data)}
        found, _ = recovered(Image(files, set(state.image.folders)), self.life.clock)
        self.counts.hit += 1
        self.counts.damaged += bool(found.damages)
        wrong = [
            f"I2 altered: {kept[3][:20]!r}"
            for kept, _ in found.holding.messages.values()
            if kept not in self.known
        ]
        lost = [one for one in self._judge(state, found) if one.startswith("I1")]
        if not found.damages and not found.torn:
            # The newest group, hit, cannot be told from a torn one; it is told as that.
            wrong += [f"nothing is called damaged, and {one}" for one in lost]
        elif not path.startswith((JOURNAL_DIR, SEGMENTS_DIR)):
            # The generation before stands in for a snapshot; the format is there twice.
            wrong += [f"a bit cost more than it may: {one}" for one in lost]
        if wrong:
            self._note(state, [f"with a bit changed at {place} of {path}", *wrong])


def some_crash(life: Life, chance: random.Random) -> Image:
    """Return a state that a crash of a life could have left, somewhere in its second half."""
    trace = life.disk.trace
    at = chance.randrange(len(trace) // 2, len(trace) + 1)
    model = CrashModel(life.disk.start)
    for operation in trace[:at]:
        model.take(operation)
    states = list(model.states(chance.randrange, DRAWN))
    return chance.choice(states).image


def every_point(_length: int) -> set[int] | None:
    """Choose all points of a life."""
    return None


def names() -> list[str]:
    """Return the names of all loads."""
    return list(LOADS)
