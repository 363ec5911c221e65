"""Words of topic keys (behaviour 39: topic exchange)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.limits import SHORT_STRING_BYTES_MAX, TOPIC_WORDS_MAX
from leveret.routing.keys import (
    check_strict_binding_key,
    check_strict_routing_key,
    pattern_words,
    split_words,
)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", []),
        ("a", ["a"]),
        ("a.b", ["a", "b"]),
        ("a.", ["a", ""]),
        (".a", ["", "a"]),
        (".", ["", ""]),
        ("a..b", ["a", "", "b"]),
        ("#.*", ["#", "*"]),
        ("ü.€", ["ü", "€"]),
    ],
)
def test_behaviour_39_words_of_a_key(key: str, words: list[str]) -> None:
    assert split_words(key) == words


@given(st.lists(st.text(st.characters(exclude_characters="."), max_size=3), min_size=1).filter(any))
def test_words_join_to_their_key(words: list[str]) -> None:
    assert split_words(".".join(words)) == words


def test_limit_of_words() -> None:
    longest_short_string = "." * SHORT_STRING_BYTES_MAX
    assert len(split_words(longest_short_string)) == TOPIC_WORDS_MAX
    with pytest.raises(PreconditionFailed) as caught:
        split_words(longest_short_string + ".")
    assert caught.value.code == 406


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        ("", []),
        ("a.b", ["a", "b"]),
        ("#", ["#"]),
        ("#.#", ["#"]),
        ("#.*", ["*", "#"]),
        ("*.#", ["*", "#"]),
        ("*.*", ["*", "*"]),
        ("#.*.#.*", ["*", "*", "#"]),
        ("#.#.a.#.*.b", ["#", "a", "*", "#", "b"]),
        ("a.#..#", ["a", "#", "", "#"]),
        ("a#.#", ["a#", "#"]),
    ],
)
def test_plainest_pattern(key: str, plain: list[str]) -> None:
    assert pattern_words(key) == plain


def refused(check: Callable[[str], None], key: str) -> str:
    """Return the text of a refusal, or "" where there is none."""
    try:
        check(key)
    except PreconditionFailed as error:
        return error.text if f"'{key}'" in error.text else f"a text without {key}"
    return ""


STRICT = ["a", "A_1", "_", "0", "a.b.c", "log.error_2.Disk"]
LOOSE = ["", ".", "a.", ".a", "a..b", "a-b", "a b", "é", "a.b$", "a*", "#a", "a/b.c", "²", "a\n"]


@pytest.mark.parametrize("key", STRICT)
def test_strict_keys(key: str) -> None:
    assert refused(check_strict_routing_key, key) == ""
    assert refused(check_strict_binding_key, key) == ""


@pytest.mark.parametrize("key", LOOSE)
def test_keys_that_are_not_strict(key: str) -> None:
    assert "strict keys" in refused(check_strict_routing_key, key)
    assert "strict keys" in refused(check_strict_binding_key, key)


@pytest.mark.parametrize("key", ["*", "#", "a.*", "a.#", "*.*", "#.a.#", "*.a.#.b"])
def test_strict_wildcards_are_for_bindings(key: str) -> None:
    assert refused(check_strict_binding_key, key) == ""
    assert "word" in refused(check_strict_routing_key, key)


@pytest.mark.parametrize("pair", ["#.#", "#.*", "*.#"])
def test_strict_neighbours(pair: str) -> None:
    for key in (pair, f"a.{pair}", f"{pair}.b", f"a.{pair}.b"):
        assert f"'{pair}' must not be adjacent" in refused(check_strict_binding_key, key)


@given(st.lists(st.sampled_from(["a", "b_1", "*", "#"]), min_size=1, max_size=6))
def test_a_strict_binding_key_is_its_own_plainest_form(words: list[str]) -> None:
    key = ".".join(words)
    pairs = set(pairwise(words)) & {("#", "#"), ("#", "*"), ("*", "#")}
    assert (refused(check_strict_binding_key, key) == "") is (not pairs)
    if not pairs:
        assert pattern_words(key) == words
