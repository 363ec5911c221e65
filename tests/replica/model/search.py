"""Searches of the model for as long as wanted, with all processors.

    cd tests && python -m replica.model.search walk [--minutes 60] [--nodes 3 --minimum 2]
    cd tests && python -m replica.model.search breadth [--near] [--depth 12]
    cd tests && python -m replica.model.search faults [--minutes 1]
    cd tests && python -m replica.model.search record --fault NAME
    cd tests && python -m replica.model.search show --fault NAME

`walk` takes random walks, half of them near the recorded schedules, and prints how many.  They are
over two and three nodes in turn; with `--nodes` only over so many, and near schedules of that size.
`breadth` tries every order of events, with `--near` from all states of the recorded schedules.
Both stop at a broken promise, print the events to it, which `walk` makes few, and exit with 1.
`--fault` plants a fault; no walk is then near a schedule.

`faults` prints for each fault after how many steps walks find it, `record` the schedule of one as
`schedules.toml` keeps it, and `show` a recorded one step by step, with the fault and without.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count, cycle, product
from typing import Final

from replica.model.breadth import Search, beginnings, near
from replica.model.cluster import Bounds, Cluster, Setting
from replica.model.faults import Fault, fault_of
from replica.model.promises import Violation
from replica.model.schedules import (
    UNBOUNDED,
    Run,
    Schedule,
    correct,
    event_of,
    recorded,
    shrunk,
    text_of,
)
from replica.model.walk import told, walk

#: Sizes of a cluster, each with the minimum of its in-sync set.
SIZES: Final = ((3, 2), (2, 1), (3, 1), (2, 2))
WIDE: Final = Bounds(groups=12, epochs=12, crashes=9, disks=3, changes=20, messages=10)
NARROW: Final = Bounds(groups=4, epochs=4, crashes=2, disks=1, changes=3, messages=4)


@dataclass(slots=True)
class Tally:
    """What walks came to: their numbers, and the events to a broken promise."""

    walks: int = 0
    steps: int = 0
    setting: Setting | None = None
    events: tuple[str, ...] = ()


def take_walks(
    settings: Sequence[Setting], seed: str, seconds: float, schedules: Sequence[Schedule] = ()
) -> Tally:
    """Take walks until a promise is broken or the time is up, half of them near the schedules."""
    tally = Tally()
    end = time.monotonic() + seconds
    plain = cycle(product((WIDE, Bounds(), Bounds(), Bounds()), settings))
    near_to = cycle(schedules)
    for number in count():
        if time.monotonic() > end:
            break
        if schedules and number % 2:
            schedule = next(near_to)
            taken = walk(correct(schedule.setting), WIDE, f"{seed}.{number}", schedule.events)
        else:
            bounds, setting = next(plain)
            taken = walk(setting, bounds, f"{seed}.{number}")
        tally.walks += 1
        tally.steps += len(taken.events)
        if taken.violation is not None:
            tally.setting, tally.events = taken.cluster.setting, tuple(told(taken))
            break
    return tally


def settings_of(given: argparse.Namespace) -> list[Setting]:
    """Return the clusters that the command line asks for."""
    fault = fault_of(given.fault) if given.fault else None
    sizes = SIZES if given.nodes is None else ((given.nodes, given.minimum),)
    return [Setting(nodes, minimum, nodes, fault) for nodes, minimum in sizes]


def schedules_of(settings: Sequence[Setting]) -> list[Schedule]:
    """Return the recorded schedules whose clusters have the size of one of these."""
    sizes = {(setting.nodes, setting.minimum) for setting in settings}
    return [
        schedule
        for schedule in recorded().values()
        if (schedule.setting.nodes, schedule.setting.minimum) in sizes
    ]


def walk_command(given: argparse.Namespace) -> int:
    """Take walks with all processors; return 1 when one of them broke a promise."""
    start = time.monotonic()
    settings, seconds = settings_of(given), given.minutes * 60
    schedules = [] if given.fault else schedules_of(settings)
    with ProcessPoolExecutor(given.jobs) as pool:
        running = [
            pool.submit(take_walks, settings, f"{given.seed}.{job}", seconds, schedules)
            for job in range(given.jobs)
        ]
        tallies = [each.result() for each in running]
    walks, steps = sum(tally.walks for tally in tallies), sum(tally.steps for tally in tallies)
    passed = time.monotonic() - start
    broken = [tally for tally in tallies if tally.setting is not None]
    _say(f"{walks} walks, {steps} steps in {passed:.0f} s ({steps / passed:,.0f}/s), "
         f"{len(broken)} broken promises")  # fmt: skip
    for tally in broken:
        assert tally.setting is not None, "it broke a promise"
        _tell(shrunk(tally.setting, tally.events), given.trace)
    return 1 if broken else 0


def breadth_command(given: argparse.Namespace) -> int:
    """Try every order of events; return 1 when one of them broke a promise."""
    starts = [
        start
        for setting in ([] if given.near else settings_of(given))
        for start in beginnings(setting, NARROW)
    ]
    if given.near:
        starts = [start for title in recorded() for start in near(title, WIDE)]
    start = time.monotonic()
    found = Search(starts).run(given.depth, given.minutes * 60)
    passed = time.monotonic() - start
    end = "complete" if found.complete else "not complete"
    _say(f"{found.states} states, {found.steps} steps, depth {found.depth}, {end}, {passed:.0f} s")
    if found.violation is None:
        return 0
    assert found.start is not None, "it led there"
    _say(f"{found.violation}, in a cluster that was")
    for line in _states(found.start):
        _say(f"    {line}")
    cluster = found.start
    for number, event in enumerate(found.events, 1):
        _say(f"  {text_of(cluster, event)}")
        if number < len(found.events):
            cluster = cluster.after(event)
    return 1


def faults_command(given: argparse.Namespace) -> int:
    """Tell how many steps of walks find each fault; return 1 when one is not found in the time."""
    missing = 0
    for fault in Fault:
        settings = [Setting(nodes, minimum, nodes, fault) for nodes, minimum in SIZES]
        tally = take_walks(settings, str(given.seed), given.minutes * 60)
        if tally.setting is None:
            missing += 1
            _say(f"{fault.title:28} not found in {tally.steps} steps")
        else:
            found = shrunk(tally.setting, tally.events)
            size = f"{tally.setting.nodes}/{tally.setting.minimum}"
            _say(f"{fault.title:28} {tally.steps:9} steps, {size}, {len(found.events):2} events: "
                 f"{found.violation}"[:200])  # fmt: skip
    return 1 if missing else 0


def record_command(given: argparse.Namespace) -> int:
    """Find a fault and print its shortest schedule of some; return 1 when there is none."""
    best: Run | None = None
    for number in range(given.tries):
        tally = take_walks(settings_of(given), f"{given.seed}.{number}", given.minutes * 60)
        if tally.setting is not None:
            found = shrunk(tally.setting, tally.events)
            if best is None or len(found.events) < len(best.events):
                best = found
    if best is None:
        return 1
    assert best.violation is not None, "a shrunk run breaks a promise"
    setting = best.cluster.setting
    lines = [f"[{given.fault}]", f"nodes = {setting.nodes}", f"minimum = {setting.minimum}",
             f"first_members = {setting.first_members}",
             f'breaks = "{best.violation.promise.name}"', 'story = """', '"""', 'events = """',
             *best.events, '"""']  # fmt: skip
    _say("\n".join(lines))
    return 0


def show_command(given: argparse.Namespace) -> int:
    """Tell a recorded schedule step by step, with its fault and without."""
    schedule = recorded()[given.fault]
    _say(f"{schedule.fault.title}: {schedule.fault.value}\n\n{schedule.story}\n")
    for setting in (schedule.setting, correct(schedule.setting)):
        _say(f"With {'the fault' if setting.fault else 'the correct protocol'}:")
        for line in steps_of(setting, schedule.events):
            _say(line)
    return 0


def steps_of(setting: Setting, events: Sequence[str]) -> Iterator[str]:
    """Yield the events of a schedule, each with what it changed."""
    cluster = Cluster(setting, UNBOUNDED)
    known: set[str] = set()
    for text in events:
        event = event_of(cluster, text)
        if event is None:
            yield f"  {text}: cannot happen"
            continue
        yield f"  {text}"
        violation = None
        try:
            cluster.step(event)
        except Violation as raised:
            violation = raised
        states = list(_states(cluster))
        yield from (f"      {state}" for state in states if state not in known)
        known = set(states)
        if violation is not None:
            yield f"  !! {violation}"
            return


def _states(cluster: Cluster) -> Iterator[str]:
    for node in cluster.nodes:
        log = " ".join(f"{group.epoch}:{group.content}" for group in node.log)
        role = "follows nobody"
        if node.leader is not None:
            role = f"leads epoch {node.leader.epoch}, committed {node.leader.committed}"
            for other, session in node.leader.sessions.items():
                role += f"; {other}.{session.incarnation} acked {session.acked}"
        elif node.following is not None:
            epoch, session_number, leader = node.following
            role = f"follows {leader} in epoch {epoch}, session {session_number}"
        yield f"{node.number}.{node.incarnation} [{log}] synced {node.synced}, {role}"
    state = cluster.registry.state
    members = ", ".join(f"{node}.{incarnation}" for node, incarnation in sorted(state.in_sync))
    yield f"registry: epoch {state.epoch}, leader {state.leader}, in sync {members}"


def _tell(found: Run, trace: bool) -> None:
    _say(str(found.violation))
    for line in found.events:
        _say(f"    {line}")
    if trace:
        for line in steps_of(found.cluster.setting, found.events):
            _say(line)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


COMMANDS: Final = {
    "walk": walk_command,
    "breadth": breadth_command,
    "faults": faults_command,
    "record": record_command,
    "show": show_command,
}


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--fault", choices=[fault.title for fault in Fault])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--minimum", type=int, default=2)
    parser.add_argument("--near", action="store_true")
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trace", action="store_true", help="print the state after each step")
    given = parser.parse_args()
    if given.command == "record" and given.fault is None:
        parser.error("record needs --fault NAME")
    if given.near and given.fault is not None:
        parser.error("--near searches the correct protocol: leave out --fault")
    if given.command == "show" and given.fault not in recorded():
        parser.error(f"show needs --fault and one of {', '.join(recorded())}")
    return COMMANDS[given.command](given)


if __name__ == "__main__":
    raise SystemExit(main())
