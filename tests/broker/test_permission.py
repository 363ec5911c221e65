"""Patterns of permissions: searched for, empty for none, and with variables that add nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.patterns.patterns import compile_pattern
from leveret.broker.users.permissions import (
    CONFIGURE,
    READ,
    WRITE,
    Permission,
    TopicPermission,
    escape,
    expand,
)
from leveret.limits import PATTERN_CHARACTERS_MAX

TEXTS = st.text(min_size=0, max_size=40)


def test_each_pattern_is_for_its_own() -> None:
    permission = Permission("^c", "^w", "^r")
    for what, letter in ((CONFIGURE, "c"), (WRITE, "w"), (READ, "r")):
        pattern = permission.pattern(what)
        assert [name for name in ("c", "w", "r") if pattern.matches(name)] == [letter]


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        ("", [""], ["q", " "]),
        (".*", ["", "q", "a.b"], []),
        ("log", ["log", "catalogue"], ["lo"]),
        ("^(a|b)$", ["a", "b"], ["ab", ""]),
        (r"^(?!amq\.).*", ["q", "amq"], ["amq.gen-x"]),
    ],
)
def test_patterns_are_searched_for(pattern: str, allowed: list[str], refused: list[str]) -> None:
    permission = Permission(pattern, "", "")
    assert all(permission.pattern(CONFIGURE).matches(name) for name in allowed)
    assert not any(permission.pattern(CONFIGURE).matches(name) for name in refused)


def test_a_pattern_that_would_take_for_ever_is_judged_at_once() -> None:
    permission = Permission("^(a+)+$", "", "")
    assert not permission.pattern(CONFIGURE).matches("a" * 254 + "!")


@given(TEXTS)
def test_an_escaped_text_stands_for_itself(text: str) -> None:
    pattern = compile_pattern(f"\\A{escape(text)}\\z")
    assert pattern.matches(text)
    assert not pattern.matches(text + "x")
    assert re.fullmatch(escape(text), text)


@given(TEXTS, TEXTS)
def test_a_variable_matches_its_value_only(value: str, other: str) -> None:
    permission = TopicPermission("\\A{username}\\z", "\\A{username}.{vhost}\\z", value, "v")
    write, read = permission.pattern(WRITE), permission.pattern(READ)
    assert write is not None
    assert read is not None
    assert write.matches(value)
    assert write.matches(other) == (value == other)
    assert read.matches(f"{value}.v")


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("{username}", "a\\.b"),
        ("x{username}y{vhost}z", "xa\\.byVz"),
        ("{username", "{username"),
        ("{client_id}{other}a{2}", "{client_id}{other}a{2}"),
        ("{{username}}", "{a\\.b}"),
        ("", ""),
    ],
)
def test_expansion(pattern: str, expanded: str) -> None:
    assert expand(pattern, {"username": "a.b", "vhost": "V"}) == expanded


def test_a_value_is_not_expanded_again() -> None:
    assert expand("{username}", {"username": "{vhost}", "vhost": "V"}) == "\\{vhost\\}"


def test_a_pattern_too_large_once_expanded_allows_nothing() -> None:
    name = "u" * (PATTERN_CHARACTERS_MAX // 2 + 1)
    assert TopicPermission("{username}{username}", "", name, "/").pattern(WRITE) is None
