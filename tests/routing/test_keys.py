"""Words of topic keys (behaviour 39)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.limits import SHORT_STRING_BYTES_MAX, TOPIC_WORDS_MAX
from leveret.routing.keys import split_words


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
