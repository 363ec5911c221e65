"""The replication protocol keeps its promises in the model: walks, and every order of events.

`python -m replica.model.search` does the same for as long as wanted.
"""

from __future__ import annotations

import pytest

from replica.model.breadth import Search, beginnings, near
from replica.model.cluster import KINDS, Bounds, Setting
from replica.model.schedules import correct, recorded
from replica.model.search import SIZES, WIDE
from replica.model.walk import walk

pytestmark = pytest.mark.one_build

sizes = pytest.mark.parametrize(("nodes", "minimum"), SIZES)


@pytest.mark.parametrize(("nodes", "minimum"), [*SIZES, (3, 3)])
def test_random_walks_break_no_promise(nodes: int, minimum: int) -> None:
    setting = Setting(nodes, minimum, nodes)
    for seed in range(200):
        taken = walk(setting, WIDE if seed % 4 == 0 else Bounds(), str(seed))
        assert taken.violation is None


@pytest.mark.parametrize("title", recorded())
def test_walks_near_a_recorded_schedule_break_no_promise(title: str) -> None:
    schedule = recorded()[title]
    for seed in range(50):
        taken = walk(correct(schedule.setting), WIDE, f"{title} {seed}", schedule.events)
        assert taken.violation is None


@sizes
def test_no_order_of_a_few_events_breaks_a_promise(nodes: int, minimum: int) -> None:
    """What is lost need not be tried: it is what does not arrive."""
    bounds = Bounds(groups=3, epochs=2, crashes=1, disks=1, changes=1, messages=2)
    kinds = [kind for kind in KINDS if kind not in {"lose", "double"}]
    starts = beginnings(Setting(nodes, minimum, nodes), bounds)
    found = Search(starts, kinds).run(6 if nodes == 2 else 4)
    assert found.violation is None
    assert found.complete


@pytest.mark.parametrize("title", recorded())
def test_no_two_events_after_any_of_a_recorded_schedule_break_a_promise(title: str) -> None:
    found = Search(near(title, WIDE)).run(2)
    assert found.violation is None
    assert found.complete
