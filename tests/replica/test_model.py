"""The replication protocol keeps its promises in the model: walks, and every order of events.

`python -m replica.model.search` does the same for as long as wanted.
"""

from __future__ import annotations

import pytest

from replica.model.breadth import Search
from replica.model.cluster import Bounds, Cluster, Setting
from replica.model.schedules import correct, event_of, recorded
from replica.model.search import SIZES, WIDE
from replica.model.walk import walk

pytestmark = pytest.mark.one_build

sizes = pytest.mark.parametrize(("nodes", "minimum"), SIZES)


@sizes
def test_random_walks_break_no_promise(nodes: int, minimum: int) -> None:
    setting = Setting(nodes, minimum, nodes)
    for seed in range(250):
        taken = walk(setting, WIDE if seed % 4 == 0 else Bounds(), str(seed))
        assert taken.violation is None


@pytest.mark.parametrize("title", recorded())
def test_walks_near_a_recorded_schedule_break_no_promise(title: str) -> None:
    schedule = recorded()[title]
    for seed in range(60):
        taken = walk(correct(schedule.setting), WIDE, f"{title} {seed}", schedule.events)
        assert taken.violation is None


@sizes
def test_no_order_of_a_few_events_breaks_a_promise(nodes: int, minimum: int) -> None:
    bounds = Bounds(groups=2, epochs=2, crashes=1, disks=1, changes=1, messages=3)
    found = Search([Cluster(Setting(nodes, minimum, nodes), bounds)]).run(6 if nodes == 2 else 4)
    assert found.violation is None
    assert found.complete


@pytest.mark.parametrize("title", recorded())
def test_no_two_events_after_any_of_a_recorded_schedule_break_a_promise(title: str) -> None:
    schedule = recorded()[title]
    cluster = Cluster(correct(schedule.setting), WIDE)
    starts = [cluster.copy()]
    for text in schedule.events:
        event = event_of(cluster, text)
        if event is not None:
            cluster.step(event)
            starts.append(cluster.copy())
    assert Search(starts).run(1).violation is None
