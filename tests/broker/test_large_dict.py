"""A dict that may have very many entries, against a dict."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.large_dict import LargeDict

#: Entries of the dict that is filled first (`large_dict._FIRST_MAX`).
FIRST = 16_384

#: Keys that find the first dict full, and one that does not.
KEYS = [f"key{number}" for number in range(8)]


def filled(count: int) -> tuple[LargeDict[str, int], dict[str, int]]:
    model = {f"filled{number}": number for number in range(count)}
    table: LargeDict[str, int] = LargeDict()
    for key, value in model.items():
        table[key] = value
    return table, model


@pytest.mark.parametrize("count", [0, FIRST - 2])
def test_it_does_what_a_dict_does(count: int) -> None:
    @given(st.lists(st.tuples(st.sampled_from("sdpc"), st.sampled_from([*KEYS, "filled7"]))))
    def steps(chosen: list[tuple[str, str]]) -> None:
        table, model = filled(count)
        for number, (what, key) in enumerate(chosen):
            if what == "s":
                table[key] = model[key] = number
            elif what == "p":
                assert table.pop(key) == model.pop(key, None)
            elif what == "d" and key in model:
                del table[key]
                del model[key]
            elif what == "d":
                with pytest.raises(KeyError):
                    del table[key]
            assert table.get(key) == model.get(key)
            assert (key in table) == (key in model)
            assert len(table) == len(model)
        assert dict(table.items()) == model
        assert sorted(table.keys()) == sorted(table) == sorted(model)
        assert sorted(table.values()) == sorted(model.values())
        assert [value for part in table.in_parts() for value in part] == table.values()
        taken = [table.popitem() for _ in range(len(table))]
        assert dict(taken) == model
        assert len(table) == 0
        with pytest.raises(KeyError):
            table["key0"]

    steps()


def test_the_order_of_some_thousands_is_that_in_which_they_came() -> None:
    table, model = filled(FIRST)
    assert list(table) == list(model)


@pytest.mark.parametrize("numbers", [False, True], ids=["names", "numbers"])
def test_none_of_its_dicts_grows_large(numbers: bool) -> None:
    table: LargeDict[object, int] = LargeDict()
    for number in range(200_000):
        table[number if numbers else f"queue{number}"] = number
    sizes = [len(one) for one in gc.get_referents(table) if isinstance(one, dict)]
    others = [one for one in gc.get_referents(table) if isinstance(one, list)]
    sizes += [len(one) for one in others[0]]
    assert sum(sizes) == len(table) == 200_000
    assert max(sizes) <= FIRST
    assert max(sizes[1:]) < 2 * 200_000 // 256
    for number in range(200_000):
        assert table[number if numbers else f"queue{number}"] == number
