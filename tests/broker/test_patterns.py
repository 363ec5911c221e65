"""Patterns: what Python's `re` finds is found, others are refused, and nothing runs long."""

from __future__ import annotations

import re
from time import process_time

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from leveret.broker.patterns.patterns import Pattern, compile_pattern
from leveret.errors import PreconditionFailed
from leveret.limits import PATTERN_CHARACTERS_MAX, PATTERN_DEPTH_MAX

NAMES = [
    "",
    "a",
    "amq.gen-1",
    "amq.",
    "orders",
    "orders.eu",
    "x_orders",
    "Ä",
    "a b",
    "tasks-12",
    "]",
]

PATTERNS = [
    "", ".*", "^amq\\.", r"^(?!amq\.).*", "^(orders|tasks)", "a$", "^$", "[a-c]+", "[^a-z.]",
    r"\d{2}", "(?i)ORDERS", "(?i:OR)ders", "o(?:r|x)d", r"(?<=x_)orders", r"(?<!x_)orders",
    r"\borders\b", "(?=.*eu)orders", "a|b|", "(a|)b", "a{0}", "[]a]", "[]-a]", "[a-]", r"[\w-]+$",
    "(a*)*$", r"\.eu\Z", "(?P<name>ord)", "o?r?d?e?r?s", "x{1,3}_", "e{2", "{", r"\x6f\x72",
    "(?#said)ord", r"[\d.]", r"^\S+$", "(?s).", "^^", "(?!)", "(?=)", r"[^\W]",
    "(?>o|or)rders", "^(?>a|am)q", "^[a-z]++s", "^[a-z]*+$", "o?+rders", r"\056", r"\101|\145u",
    "(?m)^a$",
]  # fmt: skip


@pytest.mark.parametrize("text", PATTERNS)
def test_it_finds_what_python_finds(text: str) -> None:
    wanted = re.compile(text, re.ASCII)
    assert [n for n in NAMES if Pattern(text).matches(n)] == [n for n in NAMES if wanted.search(n)]


def joined(parts: list[str]) -> str:
    return "".join(parts)


ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b", "(?=a)", "(?!b)", "(?<=a)"]
)


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, max_size=4).map(joined),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
        # Python 3.11 miscounts possessive repeats with bounds.
        st.tuples(inner, st.sampled_from(["*+", "++", "?+"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
        inner.map(lambda one: f"(?!{one})"),
        inner.map(lambda one: f"(?>{one})"),
    )


@given(st.recursive(ATOMS, larger, max_leaves=8), st.text("abc", max_size=6))
def test_it_agrees_with_python_on_anything(text: str, name: str) -> None:
    try:
        pattern = Pattern(text)
    except PreconditionFailed:
        reject()
    assert pattern.matches(name) == bool(re.search(text, name)), (text, name)


@pytest.mark.parametrize(
    "text",
    ["(", ")", "a(b", "*", "a**", "[a", "[b-a]", r"\1", r"(a)\1", r"\p{Greek}", r"\p",
     r"\p{L", "(?>(a?)*)", "(?:a|)++", "(?>(?=a)+)", "a+++", r"\R", r"\N{U+41}", r"\c", "(?x)a",
     "(?R)", "(?(1)a)", "(*UTF8)", "a{2,1}", "a{1001}", "(?<1>a)", "[[:no:]]", "\\",
     r"\x{110000}", "(?#", "((a{900}){900}){900}", "(((){900}){900}){900}",
     "(" * (PATTERN_DEPTH_MAX + 1) + ")" * (PATTERN_DEPTH_MAX + 1),
     "a" * (PATTERN_CHARACTERS_MAX + 1)],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(PreconditionFailed):
        Pattern(text)


@pytest.mark.parametrize(
    ("text", "found", "others"),
    [
        ("^[[:alpha:]]$", "a", "1"), ("^[[:^digit:]]$", "a", "1"), (r"^\Qa.b\E$", "a.b", "axb"),
        (r"^\x{61}$", "a", "x"), ("^(?<n>a)$", "a", "n"), (r"^a\hb$", "a b", "ahb"),
        (r"^\H$", "a", "\t"), (r"^\v$", "\x0b", "v"), (r"^\V$", "v", "\n"), (r"^\N$", "N", "\n"),
        (r"^\p{Lu}$", "Ä", "ä"), (r"^\P{Lu}$", "ä", "Ä"), (r"^\p{^Lu}$", "1", "A"),
        (r"^\pN$", "7", "a"), (r"^\p{L&}$", "a", "中"), (r"^\p{Xan}$", "中", "-"),
        (r"^[\p{Lu}.]$", ".", "a"), (r"^[^\p{Lu}]$", "a", "A"), (r"^[a\PL]$", "a", "b"),
        (r"^(?i)\p{Lu}$", "a", "1"), (r"^[\Q]^\E-]$", "]", "Q"), (r"^a\E$", "a", "aE"),
        (r"^a\Kb$", "ab", "aKb"), (r"\Ga", "ab", "ba"), (r"^\cA$", "\x01", "cA"),
        ("^(?|(a)|(b))$", "b", "c"), ("^(?i)a(?^)b$", "Ab", "AB"), ("^a{,2}$", "aa", "a{,2}"),
        ("^a{ 1, 2 }$", "aa", "aaa"), ("^(?>a+?)b", "ab", "aab"), ("^(?U:(?>a+))b", "ab", "aab"),
        ("^(?>ab|a)c", "abc", "bc"), ("^x++y", "xxy", "xxx"), ("^(?>a{1,2}+b)", "aab", "aaab"),
        (r"^\Qab\E*$", "abb", ""), (r"^\Q.*\E?$", ".", "a"), (r"^a\E{2}$", "aa", "a"),
        ("^a(?#b){2}$", "aa", "a{2}"), (r"^[a-\Qc-\E]$", "-", "d"), (r"^[\E]a]$", "]", "E"),
        (r"^(?i)\P{Lu}$", "1", "a"), (r"^(?i)[\p{Ll}]$", "Ä", "中"), ("^(?i)I$", "i", "\u0131"),
        ("(?<=(?>a|ab))c", "ac", "abc"), ("^(?>(?>a|ab)c|abd)", "abd", "abc"),
    ],
)  # fmt: skip
def test_what_python_does_not_know_is_taken_as_in_pcre(text: str, found: str, others: str) -> None:
    assert Pattern(text).matches(found)
    assert not Pattern(text).matches(others)


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+$",
        "(a|a)*$",
        "(a*)*b",
        ".*.*.*.*.*.*.*.*=x",
        "(?=(a+)+$)b",
        "(?!.*(a|aa)+$)",
        "(?>a+b|a+c|a+d)e",
        "(?>a(?>a(?>a+)?)?)+b",
    ],
)
def test_what_makes_others_run_for_years_answers(text: str) -> None:
    start = process_time()
    Pattern(text).matches("a" * 254 + "!")
    # A part of a second on most machines; the fence is against years.
    assert process_time() - start < 60


def test_a_walk_beyond_its_limit_finds_nothing() -> None:
    """As PCRE's own limit in RabbitMQ."""
    pattern = Pattern("^(?:(?!" + ".*x?" * 150 + "b)a)*$")
    assert pattern.matches("a" * 5)
    assert not pattern.matches("a" * 255)


def test_the_limits_hold() -> None:
    Pattern("a" * PATTERN_CHARACTERS_MAX)
    nested = "(" * PATTERN_DEPTH_MAX + "a" + ")" * PATTERN_DEPTH_MAX
    assert Pattern(nested).matches("a")


def test_compiled_patterns_are_kept_for_a_while() -> None:
    first = compile_pattern("^kept$")
    assert compile_pattern("^kept$") is first
    for number in range(300):
        compile_pattern(f"{number}")
    assert compile_pattern("^kept$").matches("kept")
