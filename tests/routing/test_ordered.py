"""Names in order against a sorted list."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.routing.ordered import OrderedNames

KEYS = st.tuples(st.booleans(), st.text("abc", max_size=3))


def everything(names: OrderedNames) -> list[tuple[bool, str]]:
    """All names, asked for one by one."""
    return [names.at(number) for number in range(int(names.size))]


@given(st.lists(KEYS, max_size=60))
def test_they_are_in_order_whatever_was_done(steps: list[tuple[bool, str]]) -> None:
    """Each step adds a name or removes the one that is there."""
    names = OrderedNames()
    there: set[tuple[bool, str]] = set()
    for key in steps:
        if key in there:
            names.remove(key)
            there.remove(key)
        else:
            names.insert(key)
            there.add(key)
        assert everything(names) == sorted(there)


@pytest.mark.parametrize("order", ["up", "down", "mixed"])
def test_many_names_are_in_blocks(order: str) -> None:
    keys = [(number % 3 == 0, f"q{number:05}") for number in range(10_000)]
    names = OrderedNames()
    chosen = random.Random(5)
    if order == "down":
        keys.reverse()
    elif order == "mixed":
        chosen.shuffle(keys)
    for key in keys:
        names.insert(key)
    assert everything(names) == sorted(keys)
    for key in keys[:9000]:
        names.remove(key)
    assert everything(names) == sorted(keys[9000:])


def test_there_is_none_beyond_the_last() -> None:
    names = OrderedNames()
    with pytest.raises(IndexError):
        names.at(0)
    names.insert((True, "q"))
    with pytest.raises(IndexError):
        names.at(1)
