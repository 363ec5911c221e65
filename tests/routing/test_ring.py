"""The hash ring: shares follow weights, and a change moves only what it must."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.limits import RING_POINTS_PER_WEIGHT
from leveret.routing.ring import HashRing, ring_hash

VALUES = [ring_hash(b"value %d" % number) for number in range(20_000)]

STEPS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 4)), max_size=12)


def ring_of(weights: dict[str, int]) -> HashRing:
    """A ring with these targets, which are their own labels."""
    ring = HashRing()
    for name, weight in weights.items():
        ring.insert(name, name, weight)
    return settled(ring)


def settled(ring: HashRing) -> HashRing:
    """The ring once it owes nothing."""
    while ring.owes():
        ring.settle(1000)
    return ring


def put(ring: HashRing, name: str, label: str, weight: int) -> None:
    """Put a target on the ring, to the end."""
    ring.insert(name, label, weight)
    settled(ring)


def take(ring: HashRing, name: str) -> None:
    """Take a target off the ring, to the end."""
    ring.remove(name)
    settled(ring)


def owners(ring: HashRing) -> list[object]:
    """Whose each value is."""
    return [ring.find(value) for value in VALUES]


def test_hashes_are_the_same_in_every_process() -> None:
    assert ring_hash(b"leveret") == 13_371_951_489_906_267_686


def test_an_empty_ring_has_no_targets() -> None:
    ring = HashRing()
    assert ring.find(ring_hash(b"x")) is None
    put(ring, "a", "a", 1)
    assert ring.find(ring_hash(b"x")) == "a"
    take(ring, "a")
    assert ring.find(ring_hash(b"x")) is None
    assert ring.size == 0


def test_the_ends_of_the_ring_meet() -> None:
    ring = ring_of({"a": 1})
    assert [ring.find(value) for value in (0, (1 << 64) - 1)] == ["a", "a"]


def test_equal_weights_get_about_equal_shares() -> None:
    counts = Counter(owners(ring_of({"a": 10, "b": 10, "c": 10, "d": 10})))
    assert all(abs(counts[name] - 5000) < 500 for name in "abcd")


DOCS = Path(__file__).parents[2] / "docs" / "reference" / "broker" / "exchanges.md"


def worst_share(names: list[str], weight: int) -> float:
    """How far the worst share is from its due, in percent: the lengths of all arcs."""
    points = sorted(
        (ring_hash(b"%s\0%d" % (name.encode(), number)), owner)
        for owner, name in enumerate(names)
        for number in range(weight * RING_POINTS_PER_WEIGHT)
    )
    # That is where the ring has them, too.
    ring = ring_of(dict.fromkeys(names, weight))
    for value in VALUES[:50]:
        _, owner = points[bisect_left(points, (value, 0)) % len(points)]
        assert ring.find(value) == names[owner]
    shares = [0] * len(names)
    before = points[-1][0] - (1 << 64)
    for point, owner in points:
        shares[owner] += point - before
        before = point
    return max(abs(share * len(names) / (1 << 64) - 1) for share in shares) * 100


@pytest.mark.parametrize(("weight", "exchanges"), [(1, 60), (10, 10)])
def test_shares_are_as_uneven_as_the_docs_say(weight: int, exchanges: int) -> None:
    (row,) = re.findall(rf"^\| {weight} \|(.*)\|$", DOCS.read_text(), re.MULTILINE)
    said = [[int(number) for number in re.findall(r"\d+", cell)] for cell in row.split("|")]
    for size, (usual, rare) in zip((2, 4, 8, 16), said, strict=True):
        worst = sorted(
            worst_share([f"exchange {number} queue {queue}" for queue in range(size)], weight)
            for number in range(exchanges)
        )
        assert statistics.median(worst) == pytest.approx(usual, abs=1)
        assert worst[exchanges * 19 // 20 - 1] == pytest.approx(rare, abs=3)


def test_shares_follow_weights() -> None:
    counts = Counter(owners(ring_of({"a": 10, "b": 20, "c": 50})))
    for name, weight in (("a", 10), ("b", 20), ("c", 50)):
        assert abs(counts[name] / len(VALUES) - weight / 80) < 0.03


def test_a_new_target_takes_values_only_to_itself() -> None:
    ring = ring_of(dict.fromkeys("abcd", 10))
    before = owners(ring)
    put(ring, "e", "e", 10)
    moved = [new for old, new in zip(before, owners(ring), strict=True) if old != new]
    assert set(moved) == {"e"}
    assert abs(len(moved) / len(VALUES) - 1 / 5) < 0.03
    take(ring, "e")
    assert owners(ring) == before


def test_a_target_that_goes_gives_up_only_its_own() -> None:
    ring = ring_of(dict.fromkeys("abcde", 10))
    before = owners(ring)
    take(ring, "c")
    moved = {old for old, new in zip(before, owners(ring), strict=True) if old != new}
    assert moved == {"c"}


def test_more_weight_keeps_what_a_target_had() -> None:
    """The points of a lower weight are among those of a greater one."""
    ring = ring_of({"a": 1, "b": 1})
    before = owners(ring)
    take(ring, "a")
    put(ring, "a", "a", 3)
    moved = {old for old, new in zip(before, owners(ring), strict=True) if old != new}
    assert moved == {"b"}


@given(STEPS, st.booleans())
def test_the_ring_depends_on_what_is_there_and_not_on_the_way(
    steps: list[tuple[str, int]], heavy: bool
) -> None:
    """Each step inserts a target or removes the one that is there; looks come between."""
    weights = {"heavy": 30} if heavy else {}
    ring = ring_of(weights)
    for name, weight in steps:
        if name in weights:
            ring.remove(name)
            del weights[name]
        else:
            ring.insert(name, name, weight)
            weights[name] = weight
        # Some of what is owed is done, or none of it.
        ring.settle(weight * 40 - 40)
        if weight % 2:
            ring.find(VALUES[0])
    settled(ring)
    assert ring.size == sum(weights.values()) * RING_POINTS_PER_WEIGHT
    again = ring_of(dict(sorted(weights.items())))
    assert [ring.find(v) for v in VALUES[:200]] == [again.find(v) for v in VALUES[:200]]


def test_a_change_costs_what_it_adds_or_takes_away() -> None:
    ring = ring_of({f"t{number}": 30 for number in range(300)})
    assert ring.find(VALUES[0])
    points = 30 * RING_POINTS_PER_WEIGHT
    for number in range(300):
        before = ring.work
        name = f"t{number}"
        take(ring, name)
        # What is put in order counts twice.
        assert ring.work - before <= 2 * (2 * points + 2 * ring.size // 256) + 256
        before = ring.work
        put(ring, name, name, 30)
        assert ring.work - before == points
        before = ring.work
        assert ring.find(VALUES[number]) is not None
        # One segment is put in order, with points of targets that went and are not swept yet.
        assert ring.work - before <= 2 * 4 * 300 * points // 256


def test_points_of_targets_that_went_do_not_gather() -> None:
    ring = ring_of({"a": 1})
    for number in range(2000):
        put(ring, "b", f"b{number}", 5)
        take(ring, "b")
    assert ring.size == RING_POINTS_PER_WEIGHT
    assert ring.held < 200 * RING_POINTS_PER_WEIGHT
    # Their places are given to others.
    assert len(ring.places) < 1000
    assert {ring.find(value) for value in VALUES[:100]} == {"a"}


def test_great_weights_come_and_go() -> None:
    ring = ring_of({"a": 1, "heavy": 1000})
    counts = Counter(owners(ring))
    assert counts["a"] < counts["heavy"] / 500
    take(ring, "heavy")
    assert set(owners(ring)) == {"a"}
    put(ring, "heavy", "heavy", 1000)
    assert Counter(owners(ring)) == counts


@pytest.mark.parametrize("units", [1, 1000, 20_000])
def test_what_is_owed_is_done_in_slices(units: int) -> None:
    ring = ring_of({"a": 10})
    points = 300 * RING_POINTS_PER_WEIGHT
    before = ring.work
    ring.insert("heavy", "heavy", 300)
    assert ring.work == before
    slices = 0
    while ring.owes():
        before = ring.work
        ring.settle(units)
        # A thousand points are made at once.
        assert ring.work - before < units + 1000
        slices += 1
    assert slices >= points // max(units, 1000)
    before = ring.work
    ring.remove("heavy")
    assert ring.work == before
    while ring.owes():
        before = ring.work
        ring.settle(units)
        # A segment is put in order at once.
        assert ring.work - before < units + 4 * (points + 1000) // 256 + 256
    assert set(owners(ring)) == {"a"}
    assert ring.held == ring.size


def test_a_target_that_grows_takes_values_one_after_the_other_and_gives_none_back() -> None:
    ring = ring_of(dict.fromkeys("abcd", 10))
    before = owners(ring)[:1000]
    ring.insert("e", "e", 300)
    taken: set[int] = set()
    parts = 0
    while ring.owes():
        ring.settle(2000)
        found = [ring.find(value) for value in VALUES[:1000]]
        now = {place for place, owner in enumerate(found) if owner == "e"}
        assert taken <= now
        assert all(owner in ("e", before[place]) for place, owner in enumerate(found))
        parts += 1
        taken = now
    assert parts > 10
    assert len(taken) > 750


def test_a_target_goes_at_once_and_while_it_grows() -> None:
    ring = ring_of({"a": 1})
    ring.insert("heavy", "heavy", 300)
    ring.settle(10_000)
    assert set(owners(ring)) == {"a", "heavy"}
    ring.remove("heavy")
    assert set(owners(ring)) == {"a"}
    # Its place is given to nobody as long as it has points.
    ring.insert("b", "b", 1)
    settled(ring)
    assert ring.size == ring.held == 2 * RING_POINTS_PER_WEIGHT
    assert set(owners(ring)) == {"a", "b"}


def test_a_ring_without_points_yet_has_no_target_for_a_value() -> None:
    ring = HashRing()
    ring.insert("a", "a", 1)
    assert ring.find(VALUES[0]) is None
    settled(ring)
    assert ring.find(VALUES[0]) == "a"


def test_points_do_not_gather_where_nothing_is_settled_to_the_end() -> None:
    """Those of targets that went are put out of the way before others are made."""
    ring = ring_of({"a": 1})
    for number in range(300):
        ring.insert("b", f"b{number}", 100)
        ring.settle(5000)
        ring.remove("b")
    assert ring.held < 20_000


def test_an_emptied_ring_has_nothing() -> None:
    ring = ring_of({"a": 10})
    assert sum(len(points) for points in ring.empty()) == 10 * RING_POINTS_PER_WEIGHT
    assert ring.find(VALUES[0]) is None
    ring.remove("a")
    assert ring.size == 0
