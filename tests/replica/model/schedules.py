"""Schedules: lists of events as text, which can be read, kept, changed and repeated.

An event is a line such as `write 0`, `append 0 2`, `deliver ack 2>0` or `lose answer r>1 #2`.  The
numbers are nodes, or how many groups a crash leaves; `r` is the registry; `#2` is the second such
message under way.  What cannot happen is passed over, so that a part of a schedule is one too, and
what a planted fault makes possible does not stop the correct protocol.

The recorded ones are in `schedules.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from replica.model.cluster import KINDS, OF_MESSAGES, Bounds, Cluster, Event, Setting
from replica.model.events import possible
from replica.model.faults import Fault, fault_of
from replica.model.messages import REGISTRY, Message
from replica.model.promises import Promise, Violation
from replica.model.recovers import recover

RECORDED: Final = Path(__file__).with_name("schedules.toml")

#: A schedule is as long as it is.
UNBOUNDED: Final = Bounds(*[1000] * len(Bounds._fields))


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule that shows what a fault breaks, and in words, how."""

    fault: Fault
    setting: Setting
    breaks: Promise
    story: str
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run: the events that happened, and the promise that the last one broke."""

    events: tuple[str, ...]
    cluster: Cluster
    violation: Violation | None


@cache
def recorded() -> dict[str, Schedule]:
    """Return the recorded schedules by the titles of their faults."""
    found: dict[str, Schedule] = {}
    for title, table in tomllib.loads(RECORDED.read_text()).items():
        fault = fault_of(title)
        setting = Setting(table["nodes"], table["minimum"], table["first_members"], fault)
        events = tuple(table["events"].strip().splitlines())
        promise = Promise[table["breaks"]]
        found[title] = Schedule(fault, setting, promise, table["story"].strip(), events)
    return found


def text_of(cluster: Cluster, event: Event) -> str:
    """Return an event that can happen now as a line of a schedule."""
    if event.kind in OF_MESSAGES:
        name = _name(cluster.network[event.at])
        alike = [_name(message) for message in cluster.network[: event.at]].count(name)
        return f"{event.kind} {name}" + (f" #{alike + 1}" if alike else "")
    return " ".join([event.kind, *(str(number) for number in event[1:] if number >= 0)])


def event_of(cluster: Cluster, text: str) -> Event | None:
    """Return the event of a line, or nothing if it cannot happen now.

    Raises: ValueError, for a line that is none of a schedule.
    """
    kind, *words = text.split()
    if kind in OF_MESSAGES:
        name = " ".join(words[:2])
        wanted = int(words[2].removeprefix("#")) if len(words) > 2 else 1
        for place, message in enumerate(cluster.network):
            if _name(message) == name:
                wanted -= 1
                if wanted == 0:
                    return Event(kind, place)
        return None
    if kind not in KINDS:
        raise ValueError(f"no event is called {kind!r}")
    event = Event(kind, *(int(word) for word in words))
    return event if event in possible(cluster, kind) else None


def _name(message: Message) -> str:
    sender, to = ("r" if node == REGISTRY else str(node) for node in message[:2])
    return f"{type(message).__name__.lower()} {sender}>{to}"


def run(setting: Setting, events: Iterable[str], bounds: Bounds = UNBOUNDED) -> Run:
    """Let the events of a schedule happen, and then the cluster recover, unless a fault loses data.

    The run ends with the first event that breaks a promise.
    """
    cluster = Cluster(setting, bounds)
    happened: list[str] = []
    try:
        for text in events:
            event = event_of(cluster, text)
            if event is not None:
                happened.append(text)
                cluster.step(event)
        if setting.fault is None or setting.fault.stops:
            for event in recover(cluster):
                cluster.step(event)
    except Violation as violation:
        return Run(tuple(happened), cluster, violation)
    return Run(tuple(happened), cluster, None)


def shrunk(setting: Setting, events: Sequence[str]) -> Run:
    """Return a run that breaks a promise by as few of the events as can be found quickly."""
    best = run(setting, events)
    assert best.violation is not None, "there is something to show"
    length = len(best.events)
    while length:
        start = 0
        while start < len(best.events):
            tried = run(setting, best.events[:start] + best.events[start + length :])
            if tried.violation is not None and len(tried.events) < len(best.events):
                best = tried
            else:
                start += length
        length = length // 2 if length > 1 else 0
    return best


def correct(setting: Setting) -> Setting:
    """Return a setting without its fault."""
    return replace(setting, fault=None)
