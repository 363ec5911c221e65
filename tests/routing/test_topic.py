"""The topic trie against behaviour 39 (topic exchange), three other matchers and a plain list.

The matchers are a regular expression, the naive recursion that a reader of the specification would
write (exponential in the number of `#`), and a table filled in by dynamic programming (words of the
pattern x words of the key).  None of them shares code with the trie.
"""

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


def words_of(key: str) -> list[str]:
    """Take a key apart."""
    return key.split(".") if key else []


def matches_by_recursion(pattern: list[str], words: list[str]) -> bool:
    """Tell the same by trying every number of words for each `#`."""
    if not pattern:
        return not words
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(matches_by_recursion(rest, words[n:]) for n in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and matches_by_recursion(rest, words[1:])


def matches_by_table(pattern: list[str], words: list[str]) -> bool:
    """Tell the same from `row[n]`: whether the pattern so far matches the first n words."""
    row = [True] + [False] * len(words)
    for part in pattern:
        if part == "#":
            row = [any(row[: n + 1]) for n in range(len(row))]
        else:
            row = [False] + [row[n] and part in ("*", words[n]) for n in range(len(words))]
    return row[-1]


def plainest(binding_key: str) -> str:
    """Order neighbouring wildcards by rewriting until nothing is left to rewrite."""
    words = words_of(binding_key)
    for _ in words:
        for n in range(len(words) - 1, 0, -1):
            if words[n - 1 : n + 1] == ["#", "#"]:
                del words[n]
            elif words[n - 1 : n + 1] == ["#", "*"]:
                words[n - 1 : n + 1] = ["*", "#"]
    return ".".join(words)


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
    assert matches_by_recursion(words_of(binding_key), words_of(routing_key)) is expected
    assert matches_by_table(words_of(binding_key), words_of(routing_key)) is expected


@given(BINDING_KEYS, ROUTING_KEYS)
def test_one_binding_matches_as_the_regular_expression_does(binding: str, routing: str) -> None:
    assert matches(binding, routing) is matches_by_regex(binding, routing)


@given(BINDING_KEYS, ROUTING_KEYS)
def test_one_binding_matches_as_the_recursion_and_the_table_do(binding: str, routing: str) -> None:
    found = matches(binding, routing)
    assert found is matches_by_recursion(words_of(binding), words_of(routing))
    assert found is matches_by_table(words_of(binding), words_of(routing))


LONG_BINDING_KEYS = st.lists(st.sampled_from("ab*#"), min_size=10, max_size=60).map(".".join)
LONG_ROUTING_KEYS = st.lists(st.sampled_from("ab"), min_size=10, max_size=100).map(".".join)


@given(st.lists(LONG_BINDING_KEYS, max_size=5), LONG_ROUTING_KEYS)
def test_long_keys_match_as_the_table_does(bindings: list[str], routing: str) -> None:
    trie = TopicTrie()
    for number, binding in enumerate(bindings):
        trie.insert(binding, number)
    words = words_of(routing)
    expected = {n for n, key in enumerate(bindings) if matches_by_table(words_of(key), words)}
    assert set(trie.match(routing)) == expected


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
        pair = (plainest(binding_key), target)
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


def test_finding_targets_of_several_keys_adds_them_to_none() -> None:
    """`find` may hand out a key's own dict, so it must not gather the others' in it."""
    trie = TopicTrie()
    for key, target in (("a", "q1"), ("*", "q2"), ("#", "q3"), ("b.#", "q4")):
        trie.insert(key, target)
    assert set(trie.find("a")) == {"q1", "q2", "q3"}
    assert set(trie.find("x")) == {"q2", "q3"}
    assert set(trie.find("x.y")) == {"q3"}
    assert set(trie.find("b.c")) == {"q3", "q4"}
    assert set(trie.find("a")) == {"q1", "q2", "q3"}


def test_keys_that_match_the_same_share_their_nodes() -> None:
    """`#.#` is `#`, and of neighbouring wildcards the `*` come first."""
    trie = TopicTrie()
    for number, key in enumerate(("#.*.#.a", "*.#.a", "#.#.*.a", "*.#.#.#.a")):
        trie.insert(key, number)
    before = trie.states_visited
    assert trie.match("x.a") == [0, 1, 2, 3]
    assert trie.states_visited - before == 1 + 2 + 2
    assert trie.remove("#.#.*.#.a", 1)
    assert trie.match("x.a") == [0, 2, 3]


@pytest.mark.parametrize("tail", ["", ".end"])
def test_twenty_hashes_against_a_hundred_words_visit_few_states(tail: str) -> None:
    """A match that searched back would visit about 100^20 states."""
    trie = TopicTrie()
    trie.insert(".".join(["#"] * 20) + tail, "q")
    key = ".".join(["word"] * 100)
    assert trie.match(key) == ([] if tail else ["q"])
    assert trie.states_visited <= 101 * 2
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


def test_wildcard_bindings_cost_what_matches_however_many_there_are() -> None:
    """The bindings of other keys are never looked at: ten times as many cost the same."""
    visited: list[int] = []
    for size in (200, 2000):
        trie = TopicTrie()
        for number in range(size):
            trie.insert(f"*.{number}.#", ("star", number))
            trie.insert(f"#.end.{number}", ("end", number))
        assert set(trie.match("log.17.x.end.17")) == {("star", 17), ("end", 17)}
        visited.append(int(trie.states_visited))
    assert visited[0] == visited[1] < 30


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
