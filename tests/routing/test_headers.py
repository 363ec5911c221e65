"""The headers matcher against behaviour 40."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.routing.headers import HeadersMatcher

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
