"""The headers matcher against behaviour 40 (headers exchange)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.routing.headers import HeadersIndex, HeadersMatcher

MODES = ["all", "any", "all-with-x", "any-with-x"]
NAMES = st.sampled_from(["a", "b", "x-a", "x-b"])
VALUES = st.sampled_from([None, 1, 1.0, True, "1", b"1", "t"])


class Timestamp:
    """What the codec makes of a table's timestamp, as far as matching sees it."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds


def matches(arguments: dict[str, object], headers: dict[str, object]) -> bool:
    """Tell whether one binding's arguments match."""
    return HeadersMatcher(arguments).matches(headers)


def kind_of(value: object) -> type:
    """Return what a value is apart from its AMQP tag: text and bytes are one kind."""
    return str if isinstance(value, bytes) else type(value)


def matches_by_definition(arguments: dict[str, object], headers: dict[str, object]) -> bool:
    """Tell the same by the definition, for the values of `VALUES`."""
    mode = str(arguments.get("x-match", "all"))
    names = [n for n in arguments if n != "x-match" and ("-with-x" in mode or n[:2] != "x-")]
    fits = [
        n in headers
        and (
            arguments[n] is None
            or (
                kind_of(arguments[n]) is kind_of(headers[n])
                and (arguments[n] == headers[n] or kind_of(headers[n]) is str)
                and str(arguments[n]).strip("b'") == str(headers[n]).strip("b'")
            )
        )
        for n in names
    ]
    return all(fits) if mode.startswith("all") else any(fits)


@given(
    st.dictionaries(NAMES, VALUES),
    st.sampled_from([*MODES, None]),
    st.dictionaries(NAMES, VALUES),
)
def test_behaviour_40_by_definition(
    arguments: dict[str, object], mode: str | None, headers: dict[str, object]
) -> None:
    if mode is not None:
        arguments = {**arguments, "x-match": mode}
    assert matches(arguments, headers) is matches_by_definition(arguments, headers)


def test_behaviour_40_all_is_the_default_and_wants_each() -> None:
    assert matches({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3})
    assert not matches({"a": 1, "b": 2}, {"a": 1})
    assert not matches({"a": 1, "b": 2, "x-match": "all"}, {"a": 1, "b": 3})


def test_behaviour_40_any_wants_one() -> None:
    assert matches({"x-match": "any", "a": 1, "b": 2}, {"b": 2})
    assert not matches({"x-match": "any", "a": 1, "b": 2}, {"a": 2, "c": 1})


@pytest.mark.parametrize("mode", ["all", "any"])
def test_behaviour_40_x_arguments_do_not_count(mode: str) -> None:
    assert matches({"x-match": mode, "a": 1, "x-b": 2}, {"a": 1})
    assert not matches({"x-match": mode, "a": 1, "x-b": 2}, {"x-b": 2})


def test_behaviour_40_with_x_counts_them_but_never_x_match() -> None:
    assert matches({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1, "x-b": 2})
    assert not matches({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1})
    assert matches({"x-match": "any-with-x", "a": 1, "x-b": 2}, {"x-b": 2})
    assert not matches({"x-match": "any-with-x", "a": 1}, {"x-match": "any-with-x"})


@pytest.mark.parametrize("mode", ["", "ALL", "some", "all ", 1, True, None, b"all", ["all"], {}])
def test_behaviour_40_an_invalid_x_match_is_406(mode: object) -> None:
    with pytest.raises(PreconditionFailed, match="x-match") as caught:
        HeadersMatcher({"x-match": mode, "a": 1})
    assert caught.value.code == 406


def test_behaviour_40_void_asks_for_presence_only() -> None:
    values: list[object] = [None, 0, "", False, [], {}]
    for value in values:
        assert matches({"a": None}, {"a": value})
    assert not matches({"a": None}, {"b": 1})
    assert not matches({"a": 1}, {"a": None})


@pytest.mark.parametrize(
    ("wanted", "given_value"),
    [
        (1, 1),
        (2**40, 2**40),
        (1.5, 1.5),
        (True, True),
        ("text", "text"),
        ("text", b"text"),
        (b"text", "text"),
        (b"\xff", b"\xff"),
        (5, Timestamp(5)),
        (Timestamp(5), Timestamp(5)),
        (Decimal("1.50"), Decimal("1.50")),
        ([1, "a", [2.0]], [1, "a", [2.0]]),
        ({"k": [True, None]}, {"k": [True, None]}),
    ],
)
def test_behaviour_40_equal_values_match_whatever_their_tag(
    wanted: object, given_value: object
) -> None:
    assert matches({"a": wanted}, {"a": given_value})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 1.0),
        (1, "1"),
        (1.0, "1.0"),
        (1, True),
        (0, False),
        (1.0, True),
        (1, Decimal(1)),
        ("a", "A"),
        (b"\xff", "\N{LATIN SMALL LETTER Y WITH DIAERESIS}"),
        (Timestamp(5), Timestamp(6)),
        (Decimal("1.5"), Decimal("1.50")),
        ([1], [1.0]),
        ([1], [True]),
        ([1], 1),
        ([1, 2], [2, 1]),
        ({"k": 1}, {"k": 1.0}),
        ({"k": 1}, {}),
        (["bool", True], True),
        ("", None),
    ],
)
def test_behaviour_40_different_values_do_not(first: object, second: object) -> None:
    if first is not None:
        assert not matches({"a": first}, {"a": second})
    if second is not None:
        assert not matches({"a": second}, {"a": first})


def test_behaviour_40_no_arguments_that_count() -> None:
    some: list[dict[str, object]] = [{}, {"a": 1}]
    nothings: list[dict[str, object]] = [{}, {"x-b": 1}]
    for headers in some:
        for nothing in nothings:
            assert matches({"x-match": "all", **nothing}, headers)
            assert not matches({"x-match": "any", **nothing}, headers)
        assert matches({"x-match": "all-with-x"}, headers)
        assert not matches({"x-match": "any-with-x"}, headers)


# -- the index of many bindings --------------------------------------------------------------------

ARGUMENTS = st.builds(
    lambda arguments, mode: arguments if mode is None else {**arguments, "x-match": mode},
    st.dictionaries(NAMES, st.sampled_from([None, 1, 1.0, True, "1", b"1", [1], {"k": "v"}])),
    st.sampled_from([*MODES, None]),
)
HEADERS = st.dictionaries(NAMES, st.sampled_from([None, 1, 1.0, "1", b"1", [1], [1.0], {"k": "v"}]))


@given(st.lists(st.tuples(st.integers(0, 8), ARGUMENTS), max_size=20), HEADERS)
def test_the_index_finds_what_each_matcher_tells(
    steps: list[tuple[int, dict[str, object]]], headers: dict[str, object]
) -> None:
    """Each step adds a binding of a number, or removes the one that is there."""
    index = HeadersIndex()
    there: dict[int, HeadersMatcher] = {}
    for number, arguments in steps:
        if number in there:
            index.remove(number)
            del there[number]
        else:
            there[number] = HeadersMatcher(arguments)
            index.insert(number, there[number])
    found = index.find(headers, 1 << 40)
    assert len(set(found)) == len(found)
    assert set(found) == {one for one, matcher in there.items() if matcher.matches(headers)}
    for number in list(there):
        index.remove(number)
    assert index.places == 0
    assert index.find(headers, 1 << 40) == []


@pytest.mark.parametrize("mode", ["all", "any"])
@pytest.mark.parametrize(("wanted", "other"), [([1], [2]), ({"k": 1}, {"k": 2}), ([1], 1)])
def test_arrays_and_tables_are_compared_where_they_are_found(
    mode: str, wanted: object, other: object
) -> None:
    index = HeadersIndex()
    index.insert("q", HeadersMatcher({"x-match": mode, "a": wanted}))
    assert index.find({"a": wanted}, 1 << 40) == ["q"]
    assert index.find({"a": other}, 1 << 40) == []
    assert index.find({"b": wanted}, 1 << 40) == []


@pytest.mark.parametrize(
    "arguments",
    [
        lambda number: {"kind": "order", "id": number},
        lambda number: {"id": number, "kind": "order"},
        lambda number: {"x-match": "any", "id": number, f"own-{number}": None},
        lambda number: {"id": number % 100, "other": number // 100},
    ],
)
def test_bindings_that_differ_in_a_value_are_not_all_looked_at(
    arguments: Callable[[int], dict[str, object]],
) -> None:
    index = HeadersIndex()
    for number in range(10_000):
        index.insert(number, HeadersMatcher(arguments(number)))
    found = index.find({"kind": "order", "id": 77, "other": 3, "more": 1}, 1 << 40)
    assert len(found) == 1
    assert index.looks < 500


def test_what_a_message_may_cost_ends_the_look_for_bindings() -> None:
    index = HeadersIndex()
    for number in range(1000):
        index.insert(number, HeadersMatcher({"a": [1, 2, 3, number], "b": None}))
    assert index.find({"a": [1, 2, 3, 7], "b": 1}, 1 << 40) == [7]
    assert index.looks > 5000
    before = index.looks
    assert index.find({"a": [1, 2, 3, 999], "b": 1}, 100) == []
    assert index.looks - before < 110
