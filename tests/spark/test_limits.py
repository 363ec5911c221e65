"""What a micro-batch takes: never more than the limit, something of each stream, in turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.spark.stream.limits import in_turn, shared, within_bytes

NAMES = st.text(max_size=3)
AVAILABLE = st.dictionaries(NAMES, st.integers(0, 2**40), max_size=20)


@given(AVAILABLE, st.integers(1, 2**45))
def test_shares_are_exact(available: dict[str, int], most: int) -> None:
    shares = shared(available, most)
    assert shares.keys() == available.keys()
    assert sum(shares.values()) == min(most, sum(available.values()))
    assert all(0 <= shares[name] <= count for name, count in available.items())


@given(AVAILABLE, st.integers(1, 2**45))
def test_each_gives_one_and_of_the_rest_in_proportion(available: dict[str, int], most: int) -> None:
    waiting = {name: count for name, count in available.items() if count > 0}
    shares = shared(available, most)
    if len(waiting) > most:
        assert [name for name in waiting if shares[name]] == [*waiting][:most]
        return
    beyond = max(1, sum(waiting.values()) - len(waiting))
    for name, count in waiting.items():
        fair = min(count, 1 + (most - len(waiting)) * (count - 1) / beyond)
        assert shares[name] >= 1
        assert abs(shares[name] - fair) <= 1 + fair * 1e-9


def test_a_small_stream_does_not_starve_beside_large_ones() -> None:
    """Its share of 10 is below one, and was floored to nothing for as long as the others grew."""
    large = 1_000_000
    assert shared({"a": large, "b": large, "c": 3}, 10) == {"a": 5, "b": 4, "c": 1}
    assert shared({"b": 3, "c": large, "a": large}, 2) == {"b": 1, "c": 1, "a": 0}
    assert shared({"c": large, "a": large, "b": 3}, 1) == {"c": 1, "a": 0, "b": 0}


@given(AVAILABLE, st.integers(1, 2**45), st.floats(0, 1e7))
def test_bytes_allow_at_least_one_message(
    available: dict[str, int], most: int, mean: float
) -> None:
    allowed = within_bytes(available, dict.fromkeys(available, mean), most)
    count = sum(allowed.values())
    assert count <= sum(available.values())
    assert count * mean <= max(most * 1.000001, mean)
    assert count >= min(1, sum(available.values()))


SIZED = st.dictionaries(NAMES, st.tuples(st.integers(0, 2**20), st.floats(0, 1e9)), max_size=12)


@given(SIZED, st.integers(1, 2**40))
def test_bytes_are_kept_to_but_for_the_first_message(
    streams: dict[str, tuple[int, float]], most: int
) -> None:
    available = {name: count for name, (count, _) in streams.items()}
    sizes = {name: size for name, (_, size) in streams.items()}
    allowed = within_bytes(available, sizes, most)
    assert all(0 <= allowed[name] <= count for name, count in available.items())
    waiting = [name for name, count in available.items() if count > 0]
    spent = sum(count * sizes[name] for name, count in allowed.items())
    assert spent <= max(most, sizes[waiting[0]] if waiting else 0) * 1.000001
    if waiting:
        assert allowed[waiting[0]] >= 1
    small = [name for name in waiting if sizes[name] * len(waiting) <= most]
    if all(name in small for name in waiting):
        assert all(allowed[name] >= 1 for name in waiting)


@given(st.lists(NAMES, unique=True), st.dictionaries(NAMES, st.integers(0, 3)))
def test_who_was_served_comes_last(order: list[str], served: dict[str, int]) -> None:
    after = in_turn(order, served)
    waits = [name for name in order if not served.get(name)]
    assert after == waits + [name for name in order if served.get(name)]
