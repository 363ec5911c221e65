"""The topic trie against behaviour 39, a regular expression and a plain list of bindings."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.limits import TOPIC_WORDS_MAX
from leveret.routing.keys import split_words
from leveret.routing.topic import TopicTrie

BINDING_KEYS = st.lists(st.sampled_from(["a", "b", "", "*", "#", "*", "#"]), max_size=6).map(
    ".".join
)
ROUTING_KEYS = st.lists(st.sampled_from(["a", "b", "c", "", "*", "#"]), max_size=7).map(".".join)
TARGETS = st.sampled_from(["q1", "q2", "q3"])


def matches(binding_key: str, routing_key: str) -> bool:
    """Tell whether the key matches, by way of a trie with one binding."""
    trie = TopicTrie()
    trie.insert(binding_key, "q")
    return trie.match(routing_key) == ["q"]


def matches_by_regex(binding_key: str, routing_key: str) -> bool:
    """Tell the same by a regular expression over words that each end in a dot."""
    forms = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    pattern = "".join(forms.get(w, re.escape(w) + r"\.") for w in split_words(binding_key))
    text = "".join(word + "." for word in split_words(routing_key))
    return re.fullmatch(pattern, text) is not None


@pytest.mark.parametrize(
    ("binding_key", "routing_key", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("#", "", True),
        ("#", "a", True),
        ("#", "a.b.c", True),
        ("#", ".", True),
        ("*", "", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("a.#", "a", True),
        ("a.#", "a.", True),
        ("a.#", "a.b.c", True),
        ("a.#", "b.a", False),
        ("#.a", "a", True),
        ("#.a", "b.c.a", True),
        ("#.a", "a.b", False),
        ("a.#.b", "a.b", True),
        ("a.#.b", "a.b.b", True),
        ("a.#.b", "a.x.y.b", True),
        ("a.#.b", "a.x.y", False),
        ("#.#", "", True),
        ("#.#", "a.b.c", True),
        ("*.#", "", False),
        ("*.#", "a", True),
        ("#.*", "", False),
        ("#.*", "a.b", True),
        ("*.*", ".", True),
        ("*.*", "a.", True),
        ("a.*", "a.", True),
        ("a.*", "a", False),
        ("a.", "a.", True),
        ("a.", "a", False),
        ("a.", "a.b", False),
        ("a*", "ab", False),
        ("a*", "a*", True),
        ("a", "A", False),
        ("*", "#", True),
        ("a", "*", False),
        ("*.a", "#.a", True),
    ],
)
def test_behaviour_39(binding_key: str, routing_key: str, expected: bool) -> None:
    assert matches(binding_key, routing_key) is expected
    assert matches_by_regex(binding_key, routing_key) is expected


@given(BINDING_KEYS, ROUTING_KEYS)
def test_one_binding_matches_as_the_regular_expression_does(binding: str, routing: str) -> None:
    assert matches(binding, routing) is matches_by_regex(binding, routing)


@given(st.lists(st.tuples(BINDING_KEYS, TARGETS), max_size=12), st.lists(ROUTING_KEYS, max_size=4))
def test_many_bindings_match_as_the_regular_expression_does(
    bindings: list[tuple[str, str]], routing_keys: list[str]
) -> None:
    trie = TopicTrie()
    for binding_key, target in bindings:
        trie.insert(binding_key, target)
    for routing_key in routing_keys:
        found = trie.match(routing_key)
        expected = {t for key, t in bindings if matches_by_regex(key, routing_key)}
        assert len(found) == len(set(found))
        assert set(found) == expected


@given(
    st.lists(st.tuples(st.booleans(), BINDING_KEYS, TARGETS), max_size=40), st.lists(ROUTING_KEYS)
)
def test_inserts_and_removes_follow_a_list_of_bindings(
    steps: list[tuple[bool, str, str]], routing_keys: list[str]
) -> None:
    trie = TopicTrie()
    bindings: list[tuple[str, str]] = []
    for inserts, binding_key, target in steps:
        pair = (binding_key, target)
        if inserts:
            trie.insert(binding_key, target)
            bindings.append(pair)
        else:
            assert trie.remove(binding_key, target) is (pair in bindings)
            if pair in bindings:
                bindings.remove(pair)
        assert trie.is_empty() is (not bindings)
    for routing_key in routing_keys:
        expected = {t for key, t in bindings if matches_by_regex(key, routing_key)}
        assert set(trie.match(routing_key)) == expected
    for binding_key, target in bindings:
        assert trie.remove(binding_key, target)
    assert trie.is_empty()


def test_behaviour_36_a_target_bound_by_two_keys_is_found_once_and_kept_by_either() -> None:
    trie = TopicTrie()
    trie.insert("a.*", "q")
    trie.insert("#", "q")
    assert trie.match("a.b") == ["q"]
    assert trie.remove("a.*", "q")
    assert trie.match("a.b") == ["q"]
    assert trie.remove("#", "q")
    assert trie.match("a.b") == []


def test_one_pair_inserted_twice_is_removed_twice() -> None:
    trie = TopicTrie()
    trie.insert("a", "q")
    trie.insert("a", "q")
    assert trie.remove("a", "q")
    assert trie.match("a") == ["q"]
    assert trie.remove("a", "q")
    assert not trie.remove("a", "q")
    assert trie.is_empty()


def test_removing_a_prefix_keeps_the_longer_key_and_the_other_way_round() -> None:
    for first, second in (("a", "a.b.c"), ("a.b.c", "a")):
        trie = TopicTrie()
        trie.insert("a", 1)
        trie.insert("a.b.c", 2)
        assert trie.remove(first, 1 if first == "a" else 2)
        assert trie.match(first) == []
        assert trie.match(second) == [1 if second == "a" else 2]


def test_targets_are_told_apart_by_identity_where_they_do_not_compare() -> None:
    first, second = object(), object()
    trie = TopicTrie()
    trie.insert("a", first)
    trie.insert("#", second)
    trie.insert("a.#", first)
    assert trie.match("a") == [first, second]


def test_order_of_targets_is_the_order_of_their_inserts_on_one_key() -> None:
    trie = TopicTrie()
    for target in ("q3", "q1", "q2"):
        trie.insert("k", target)
    assert trie.match("k") == ["q3", "q1", "q2"]


def test_a_match_does_not_hand_out_what_the_trie_holds() -> None:
    trie = TopicTrie()
    trie.insert("a", "q1")
    trie.match("a").append("q2")
    assert trie.match("a") == ["q1"]


@pytest.mark.parametrize("tail", ["", ".end"])
def test_twenty_hashes_against_a_hundred_words_visit_few_states(tail: str) -> None:
    """A match that searched back would visit about 100^20 states."""
    trie = TopicTrie()
    trie.insert(".".join(["#"] * 20) + tail, "q")
    key = ".".join(["word"] * 100)
    assert trie.match(key) == ([] if tail else ["q"])
    assert trie.states_visited <= 101 * 22
    assert trie.match(key + ".end") == ["q"]


def test_hashes_with_words_between_visit_few_states() -> None:
    trie = TopicTrie()
    trie.insert(".".join(["#", "a"] * 10) + ".b", "q")
    assert trie.match(".".join(["a"] * 100)) == []
    assert trie.states_visited <= 101 * 22
    assert trie.match(".".join(["a"] * 100) + ".b") == ["q"]


def test_literal_keys_cost_a_state_per_word_however_many_there_are() -> None:
    trie = TopicTrie()
    for number in range(2000):
        trie.insert(f"queue.{number}.done", number)
    assert trie.match("queue.1234.done") == [1234]
    assert trie.states_visited == 4


def test_limit_of_words() -> None:
    trie = TopicTrie()
    longest = ".".join(["w"] * TOPIC_WORDS_MAX)
    trie.insert(longest, "q")
    assert trie.match(longest) == ["q"]
    for call in (
        lambda: trie.insert(longest + ".w", "q"),
        lambda: trie.remove(longest + ".w", "q"),
        lambda: trie.match(longest + ".w"),
    ):
        with pytest.raises(PreconditionFailed):
            call()
    assert trie.remove(longest, "q")
    assert trie.is_empty()
