"""What a micro-batch takes: shares are exact, in proportion, and never more than there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.spark.limits import shared, within_bytes

AVAILABLE = st.dictionaries(st.text(max_size=3), st.integers(0, 2**40), max_size=20)


@given(AVAILABLE, st.integers(1, 2**45))
def test_shares_are_exact(available: dict[str, int], most: int) -> None:
    shares = shared(available, most)
    assert shares.keys() == available.keys()
    assert sum(shares.values()) == min(most, sum(available.values()))
    assert all(0 <= shares[name] <= count for name, count in available.items())


@given(AVAILABLE, st.integers(1, 2**45))
def test_shares_are_in_proportion(available: dict[str, int], most: int) -> None:
    total = max(1, sum(available.values()))
    for name, share in shared(available, most).items():
        fair = min(available[name], most * available[name] / total)
        assert abs(share - fair) <= 1 + fair * 1e-9


@given(AVAILABLE, st.integers(1, 2**45), st.floats(0, 1e7))
def test_bytes_allow_at_least_one_message(
    available: dict[str, int], most: int, mean: float
) -> None:
    allowed = within_bytes(available, dict.fromkeys(available, mean), most)
    count = sum(allowed.values())
    assert count <= sum(available.values())
    assert count * mean <= max(most * 1.000001, mean)
    assert count >= min(1, sum(available.values()))
