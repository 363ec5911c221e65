"""Random walks through what can happen, from the beginning or near a schedule.

Each walk has a seed, and draws how likely each kind of event is: a walk of few crashes and many
elections finds other things than one of the opposite.  At its end all faults end, and the cluster
must confirm again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from replica.model.cluster import KINDS, Bounds, Cluster, Event, Setting
from replica.model.events import possible
from replica.model.promises import Violation
from replica.model.recovers import recover
from replica.model.schedules import event_of, text_of

#: How likely each kind is to be tried, before a walk's own factor: so that a third of the walks or
#: more confirm groups in two epochs.
WEIGHTS: Final = {
    "deliver": 20.0,
    "double": 0.6,
    "lose": 0.4,
    "rewrite": 0.1,
    "sync": 6.0,
    "stand": 0.4,
    "resume": 2.0,
    "write": 1.5,
    "hello": 1.0,
    "append": 10.0,
    "start-over": 0.3,
    "commit": 12.0,
    "checkpoint": 0.5,
    "shrink": 0.3,
    "grow": 6.0,
    "replace": 2.0,
    "settle": 0.8,
    "kill": 0.15,
    "power": 0.15,
    "disk": 0.15,
}
FACTORS: Final = (0.2, 1.0, 1.0, 1.0, 3.0)
STEPS_PER_EPOCH: Final = 24
#: After the last event of a schedule.
STEPS_BEYOND: Final = 20


@dataclass(slots=True)
class Walk:
    """One walk: the events that it took, and the promise that the last of them broke."""

    cluster: Cluster
    chance: random.Random
    events: list[Event] = field(default_factory=list)
    violation: Violation | None = None

    def take(self, more: int) -> None:
        """Take so many random steps, or fewer where little can happen.

        Raises: Violation.
        """
        choice, chance, cluster = self.chance.choices, self.chance.random, self.cluster
        factor = self.chance.choice
        wanted = len(self.events) + more
        weights = list(accumulate(WEIGHTS[kind] * factor(FACTORS) for kind in KINDS))
        for kind in choice(KINDS, cum_weights=weights, k=more * 8):
            events = possible(cluster, kind)
            if events:
                self.step(events[int(chance() * len(events))])
                if len(self.events) >= wanted:
                    return

    def follow(self, schedule: Sequence[str]) -> None:
        """Take most steps of a schedule, and a few others between.

        Raises: Violation.
        """
        chance, cluster = self.chance.random, self.cluster
        skipped, added = self.chance.choice(((0.0, 0.1), (0.03, 0.03), (0.1, 0.1), (0.1, 0.0)))
        for text in schedule:
            if chance() < skipped:
                continue
            if chance() < added:
                self.take(1)
            event = event_of(cluster, text)
            if event is not None:
                self.step(event)
        self.take(STEPS_BEYOND)

    def step(self, event: Event) -> None:
        """Take a step, and remember it."""
        self.events.append(event)
        self.cluster.step(event)


def walk(setting: Setting, bounds: Bounds, seed: str, schedule: Sequence[str] = ()) -> Walk:
    """Take a walk of a seed, near a schedule if there is one."""
    chance = random.Random(seed)
    if not schedule and chance.random() < 0.2:
        setting = replace(setting, first_members=chance.randint(1, setting.first_members))
    taken = Walk(Cluster(setting, bounds), chance)
    try:
        if schedule:
            taken.follow(schedule)
        else:
            taken.take(STEPS_PER_EPOCH * bounds.epochs)
        if setting.fault is None or setting.fault.stops:
            for event in recover(taken.cluster):
                taken.step(event)
    except Violation as violation:
        taken.violation = violation
    return taken


def told(taken: Walk) -> Iterator[str]:
    """Yield the steps of a walk as the lines of a schedule."""
    cluster = Cluster(taken.cluster.setting, taken.cluster.bounds)
    for event in taken.events:
        yield text_of(cluster, event)
        try:
            cluster.step(event)
        except Violation:
            return
