"""Topic keys as lists of words; a key is taken apart here and nowhere else.

The words of a key are what its dots separate, and a word may be empty: "a." is two words, of which
the second is empty.  The empty key alone is no words at all (as RabbitMQ has it), which `#` matches
and `*` does not.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import PreconditionFailed
from leveret.limits import TOPIC_WORDS_MAX

#: In a binding key: exactly one word, whichever; it may be empty.
ONE_WORD: Final = "*"

#: In a binding key: any number of words, also none.
ANY_WORDS: Final = "#"


def split_words(key: str) -> list[str]:
    """Return the words of a binding key or routing key.

    Raises: PreconditionFailed (406) for more than `TOPIC_WORDS_MAX` words, which no AMQP short
    string holds.
    """
    if not key:
        return []
    words = key.split(".")
    if len(words) > TOPIC_WORDS_MAX:
        raise PreconditionFailed(f"a key of {len(words)} words exceeds {TOPIC_WORDS_MAX}")
    return words
