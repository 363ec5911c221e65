"""Every order of events, breadth first: all states that so many events lead to.

A search starts at some states: a cluster that begins, one that has confirmed groups, or those that
the recorded schedules lead through.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple

from replica.model.cluster import KINDS, Bounds, Cluster, Event, Setting
from replica.model.events import possible
from replica.model.promises import Violation
from replica.model.recovers import recover
from replica.model.schedules import correct, event_of, recorded


@dataclass(slots=True)
class Found:
    """How far a search came, and the first broken promise, with the events to it from `start`."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    complete: bool = False
    violation: Violation | None = None
    start: Cluster | None = None
    events: tuple[Event, ...] = ()


_NODE: Final = attrgetter(
    "incarnation", "log", "synced", "checkpoint", "obeyed", "committed", "transactions",
    "taken_as_synced", "process", "following", "candidacy",
)  # fmt: skip
_LEADER: Final = attrgetter("epoch", "first", "in_sync", "revision", "committed", "opened")
_COUNTS: Final = attrgetter("contents", "crashes", "disks", "changes")
_WITNESS: Final = attrgetter("confirmed", "shown", "complete")


def key_of(cluster: Cluster) -> int:
    """Return a hash that tells a state from others; the order of messages does not matter."""
    leaders = [
        leader
        and (_LEADER(leader), tuple(leader.unclear.items()), frozenset(leader.sessions.items()))
        for leader in (node.leader for node in cluster.nodes)
    ]
    return hash(
        (
            cluster.setting,
            *map(_NODE, cluster.nodes),
            *leaders,
            cluster.registry.state,
            frozenset(cluster.network),
            _WITNESS(cluster.witness),
            frozenset(cluster.witness.confirming.items()),
            _COUNTS(cluster),
        )
    )


def beginnings(setting: Setting, bounds: Bounds) -> list[Cluster]:
    """Return a cluster that begins, and one whose members all follow and have confirmed groups."""
    begun, at_work = Cluster(setting, bounds), Cluster(setting, bounds)
    for event in recover(at_work):
        at_work.step(event)
    return [begun, at_work]


def near(title: str, bounds: Bounds) -> list[Cluster]:
    """Return all states that a recorded schedule leads the correct protocol through."""
    schedule = recorded()[title]
    cluster = Cluster(correct(schedule.setting), bounds)
    starts = [cluster]
    for text in schedule.events:
        event = event_of(cluster, text)
        if event is not None:
            cluster = cluster.after(event)
            starts.append(cluster)
    return starts


class Reached(NamedTuple):
    """A state, and the events that led to it."""

    cluster: Cluster
    start: Cluster
    events: tuple[Event, ...]


class Search:
    """A search from some states, level by level, with events of some kinds."""

    def __init__(self, starts: Iterable[Cluster], kinds: Sequence[str] = KINDS) -> None:
        self.found = Found()
        self._kinds = kinds
        self._seen: set[int] = set()
        self._level: list[Reached] = []
        for start in starts:
            self._add(self._level, Reached(start, start, ()))

    def run(self, depth: int, seconds: float = inf) -> Found:
        """Search until all states of a depth are known, a promise is broken, or time is up."""
        end = time.monotonic() + seconds
        while self._level and self.found.depth < depth:
            following: list[Reached] = []
            for reached in self._level:
                if time.monotonic() > end:
                    return self.found
                try:
                    self._expand(following, reached)
                except Violation as violation:
                    self.found.violation = violation
                    return self.found
            self._level = following
            self.found.depth += 1
        self.found.complete = True
        return self.found

    def _expand(self, following: list[Reached], reached: Reached) -> None:
        for kind in self._kinds:
            for event in possible(reached.cluster, kind):
                events = (*reached.events, event)
                self.found.start, self.found.events = reached.start, events
                self.found.steps += 1
                after = reached.cluster.after(event)
                self._add(following, Reached(after, reached.start, events))

    def _add(self, level: list[Reached], reached: Reached) -> None:
        key = key_of(reached.cluster)
        if key not in self._seen:
            self._seen.add(key)
            self.found.states += 1
            level.append(reached)
