"""The hash ring: shares follow weights, and a change moves only what it must."""

from __future__ import annotations

from collections import Counter

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
    return ring


def owners(ring: HashRing) -> list[object]:
    """Whose each value is."""
    return [ring.find(value) for value in VALUES]


def test_hashes_are_the_same_in_every_process() -> None:
    assert ring_hash(b"leveret") == 13_371_951_489_906_267_686


def test_an_empty_ring_has_no_targets() -> None:
    ring = HashRing()
    assert ring.find(ring_hash(b"x")) is None
    ring.insert("a", "a", 1)
    assert ring.find(ring_hash(b"x")) == "a"
    ring.remove("a")
    assert ring.find(ring_hash(b"x")) is None
    assert ring.size == 0


def test_the_ends_of_the_ring_meet() -> None:
    ring = ring_of({"a": 1})
    assert [ring.find(value) for value in (0, (1 << 64) - 1)] == ["a", "a"]


def test_equal_weights_get_about_equal_shares() -> None:
    counts = Counter(owners(ring_of({"a": 10, "b": 10, "c": 10, "d": 10})))
    assert all(abs(counts[name] - 5000) < 500 for name in "abcd")


def test_shares_follow_weights() -> None:
    counts = Counter(owners(ring_of({"a": 10, "b": 20, "c": 50})))
    for name, weight in (("a", 10), ("b", 20), ("c", 50)):
        assert abs(counts[name] / len(VALUES) - weight / 80) < 0.03


def test_a_new_target_takes_values_only_to_itself() -> None:
    ring = ring_of(dict.fromkeys("abcd", 10))
    before = owners(ring)
    ring.insert("e", "e", 10)
    moved = [new for old, new in zip(before, owners(ring), strict=True) if old != new]
    assert set(moved) == {"e"}
    assert abs(len(moved) / len(VALUES) - 1 / 5) < 0.03
    ring.remove("e")
    assert owners(ring) == before


def test_a_target_that_goes_gives_up_only_its_own() -> None:
    ring = ring_of(dict.fromkeys("abcde", 10))
    before = owners(ring)
    ring.remove("c")
    moved = {old for old, new in zip(before, owners(ring), strict=True) if old != new}
    assert moved == {"c"}


def test_more_weight_keeps_what_a_target_had() -> None:
    """The points of a lower weight are among those of a greater one."""
    ring = ring_of({"a": 1, "b": 1})
    before = owners(ring)
    ring.remove("a")
    ring.insert("a", "a", 3)
    moved = {old for old, new in zip(before, owners(ring), strict=True) if old != new}
    assert moved == {"b"}


@given(STEPS, st.booleans())
def test_the_ring_depends_on_what_is_there_and_not_on_the_way(
    steps: list[tuple[str, int]], heavy: bool
) -> None:
    """Each step inserts a target or removes the one that is there; looks come between.

    Beside one of great weight the others are put in and taken out point by point.
    """
    weights = {"heavy": 30} if heavy else {}
    ring = ring_of(weights)
    for name, weight in steps:
        if name in weights:
            ring.remove(name)
            del weights[name]
        else:
            ring.insert(name, name, weight)
            weights[name] = weight
        if weight % 2:
            ring.find(VALUES[0])
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
        ring.remove(name)
        # What is put in order counts twice.
        assert ring.work - before <= 2 * (2 * points + 2 * ring.size // 256) + 256
        before = ring.work
        ring.insert(name, name, 30)
        assert ring.work - before == points
        before = ring.work
        assert ring.find(VALUES[number]) is not None
        # One segment is put in order, with points of targets that went and are not swept yet.
        assert ring.work - before <= 2 * 4 * 300 * points // 256


def test_points_of_targets_that_went_do_not_gather() -> None:
    ring = ring_of({"a": 1})
    for number in range(2000):
        ring.insert("b", f"b{number}", 5)
        ring.remove("b")
    assert ring.size == RING_POINTS_PER_WEIGHT
    assert ring.held < 200 * RING_POINTS_PER_WEIGHT
    # Their places are given to others.
    assert len(ring.places) < 1000
    assert {ring.find(value) for value in VALUES[:100]} == {"a"}


def test_great_weights_come_and_go() -> None:
    ring = ring_of({"a": 1, "heavy": 1000})
    counts = Counter(owners(ring))
    assert counts["a"] < counts["heavy"] / 500
    ring.remove("heavy")
    assert set(owners(ring)) == {"a"}
    ring.insert("heavy", "heavy", 1000)
    assert Counter(owners(ring)) == counts
