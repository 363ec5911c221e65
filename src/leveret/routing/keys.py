"""Splitting topic keys into words, and checking them.

The words of a key are separated by dots, and a word may be empty: "a." has two words, of which the
second is empty.  Only the empty key has no words (as in RabbitMQ); `#` matches it and `*` does not.

Strict keys are an option of a vhost.  A strict key has at least one word, and no word is empty or
contains more than ASCII letters, digits and `_`.  In a binding key a word may be a wildcard, but
`#` must not be adjacent to another wildcard, because a simpler pattern is equivalent.
"""

from __future__ import annotations

import re
from typing import Final

from leveret.errors import PreconditionFailed
from leveret.limits import TOPIC_WORDS_MAX

#: In a binding key: exactly one word, which may be empty.
ONE_WORD: Final = "*"

#: In a binding key: any number of words, including none.
ANY_WORDS: Final = "#"

_STRICT_WORD: Final = re.compile("[A-Za-z0-9_]+")


def split_words(key: str) -> list[str]:
    """Return the words of a binding key or routing key.

    Raises: PreconditionFailed (406) for more than `TOPIC_WORDS_MAX` words, which do not fit into an
    AMQP short string.
    """
    if not key:
        return []
    words = key.split(".")
    if len(words) > TOPIC_WORDS_MAX:
        raise PreconditionFailed(f"a key of {len(words)} words exceeds {TOPIC_WORDS_MAX}")
    return words


def pattern_words(binding_key: str) -> list[str]:
    """Return the words of the simplest binding key that is equivalent to `binding_key`.

    In a run of wildcards, a single `#` replaces all others and follows the `*`: `#.*.#` is `*.#`.

    Raises: PreconditionFailed (406) for more than `TOPIC_WORDS_MAX` words.
    """
    words = split_words(binding_key)
    if ANY_WORDS not in words:
        return words
    plain: list[str] = []
    open_end = False
    for word in words:
        if word == ANY_WORDS:
            open_end = True
            continue
        if open_end and word != ONE_WORD:
            plain.append(ANY_WORDS)
            open_end = False
        plain.append(word)
    if open_end:
        plain.append(ANY_WORDS)
    return plain


def check_strict_routing_key(key: str) -> None:
    """Check that a routing key is strict.  Raises: PreconditionFailed (406)."""
    for word in split_words(key) or [""]:
        _check_strict_word("routing key", key, word)


def check_strict_binding_key(key: str) -> None:
    """Check that a topic binding key is strict.  Raises: PreconditionFailed (406)."""
    before = ""
    for word in split_words(key) or [""]:
        if word not in (ONE_WORD, ANY_WORDS):
            _check_strict_word("binding key", key, word)
        elif ANY_WORDS in (before, word) and before in (ONE_WORD, ANY_WORDS):
            raise _not_strict("binding key", key, f"'{before}.{word}' must not be adjacent")
        before = word


def _check_strict_word(what: str, key: str, word: str) -> None:
    if not word:
        raise _not_strict(what, key, "a word is empty")
    if _STRICT_WORD.fullmatch(word) is None:
        raise _not_strict(
            what, key, f"the word '{word}' contains more than letters, digits and '_'"
        )


def _not_strict(what: str, key: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"{what} '{key}' breaks the vhost's rule of strict keys: {why}")
